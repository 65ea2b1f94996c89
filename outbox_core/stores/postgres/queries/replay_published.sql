-- Replay the next published messages of a plan.
{include queries/replay.sql moment=published_at}
