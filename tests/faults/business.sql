-- What the writers' own application has, and a trail of everything that happens to the messages.
CREATE TABLE faults_counter (
    key   text   NOT NULL PRIMARY KEY,
    place bigint NOT NULL
);

-- Written in the transaction of its message: what is here was committed, whatever the writer came to know.
CREATE TABLE faults_ledger (
    event_id uuid    NOT NULL PRIMARY KEY,
    key      text    NULL,
    place    bigint  NULL,
    poison   boolean NOT NULL,
    content  text    NOT NULL,
    role     text    NOT NULL DEFAULT session_user
);

GRANT INSERT ON faults_ledger TO faults_writer;
GRANT SELECT, INSERT, UPDATE ON faults_counter TO faults_writer;

-- Relays share one role, as they do in earnest; each tells its name when it connects.
CREATE TABLE faults_trail (
    number    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id  uuid        NOT NULL,
    row_id    uuid        NOT NULL,
    who       text        NOT NULL DEFAULT coalesce(nullif(current_setting('faults.relay', true), ''), session_user),
    role      text        NOT NULL DEFAULT session_user,
    was       text        NOT NULL,
    became    text        NOT NULL,
    old_token uuid        NULL,
    new_token uuid        NULL,
    held      interval    NULL,
    miscount  boolean     NOT NULL
);

CREATE FUNCTION faults_state(published timestamptz, dead timestamptz, token uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN published IS NOT NULL THEN 'published' WHEN dead IS NOT NULL THEN 'dead'
        WHEN token IS NOT NULL THEN 'leased' ELSE 'pending'
    END
$$;

-- A claim charges an attempt, what is given back undispatched has paid nothing, and nothing else charges one. What failed
-- is due later than before; what is given back is due when it was.
CREATE FUNCTION faults_miscount(before faults_outbox, after faults_outbox) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN after.lock_token IS NOT NULL AND after.lock_token IS DISTINCT FROM before.lock_token
            THEN after.attempts <> before.attempts + 1
        WHEN
            before.lock_token IS NOT NULL AND after.lock_token IS NULL
            AND after.published_at IS NULL AND after.dead_at IS NULL AND after.available_at = before.available_at
            THEN after.attempts <> greatest(before.attempts - 1, 0)
        ELSE after.attempts > before.attempts
    END
$$;

-- What is deleted with its lease is as good as published, for whoever may do so. Cleaning leaves no trail: the end of
-- what it deletes is on it. As its owner: those who change messages may not write the trail.
CREATE FUNCTION faults_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before text := public.faults_state(OLD.published_at, OLD.dead_at, OLD.lock_token);
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO public.faults_trail (event_id, row_id, was, became, old_token, new_token, held, miscount)
        VALUES (
            OLD.event_id, OLD.id, before, public.faults_state(NEW.published_at, NEW.dead_at, NEW.lock_token),
            OLD.lock_token, NEW.lock_token, clock_timestamp() - OLD.locked_at, public.faults_miscount(OLD, NEW)
        );
    ELSIF before NOT IN ('published', 'dead') THEN
        INSERT INTO public.faults_trail (event_id, row_id, was, became, old_token, held, miscount)
        VALUES (OLD.event_id, OLD.id, before, 'published', OLD.lock_token, clock_timestamp() - OLD.locked_at, false);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER faults_record AFTER UPDATE OR DELETE ON faults_outbox FOR EACH ROW EXECUTE FUNCTION faults_record();
