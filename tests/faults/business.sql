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
    poison   boolean NOT NULL
);

CREATE TABLE faults_trail (
    number    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id  uuid        NOT NULL,
    who       text        NOT NULL DEFAULT session_user,
    was       text        NOT NULL,
    became    text        NOT NULL,
    old_token uuid        NULL,
    new_token uuid        NULL,
    held      interval    NULL
);

CREATE FUNCTION faults_state(published timestamptz, dead timestamptz, token uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN published IS NOT NULL THEN 'published' WHEN dead IS NOT NULL THEN 'dead'
        WHEN token IS NOT NULL THEN 'leased' ELSE 'pending'
    END
$$;

CREATE FUNCTION faults_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.faults_trail (event_id, was, became, old_token, new_token, held)
    VALUES (
        OLD.event_id,
        public.faults_state(OLD.published_at, OLD.dead_at, OLD.lock_token),
        public.faults_state(NEW.published_at, NEW.dead_at, NEW.lock_token),
        OLD.lock_token, NEW.lock_token, clock_timestamp() - OLD.locked_at
    );
    RETURN NULL;
END
$$;

CREATE TRIGGER faults_record AFTER UPDATE ON faults_outbox FOR EACH ROW EXECUTE FUNCTION faults_record();
