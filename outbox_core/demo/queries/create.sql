-- The order service's own table and the consumer's, in a database that belongs to the demonstration alone.
CREATE TABLE orders (
    event_id uuid PRIMARY KEY,
    customer text NOT NULL,
    cents    integer NOT NULL CHECK (cents > 0)
);
CREATE TABLE shipments (
    event_id uuid PRIMARY KEY,
    cents    integer NOT NULL
);
