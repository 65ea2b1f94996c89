"""One module a command (or group of commands), imported when that command is run."""
