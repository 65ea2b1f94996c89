    audit.id, audit.action, audit.actor, audit.reason, audit.filter::text, audit.as_of, audit.planned, audit.changed,
    audit.rate, audit.batches, audit.cursor_at, audit.cursor_sequence, audit.paced_until,
    audit.started_at, audit.finished_at
