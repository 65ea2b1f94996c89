-- The first unresolved message of a key that may hold up those behind it.
SELECT
    {include queries/letter_columns.sql}
FROM {table}
WHERE id = (
    {include queries/head.sql}
)
