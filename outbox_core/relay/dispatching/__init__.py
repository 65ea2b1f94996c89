"""Dispatching: to which destination, whether a row may start there now, and the tasks that call the dispatcher."""
