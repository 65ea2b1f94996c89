SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '{table}'::regclass
