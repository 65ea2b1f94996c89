-- Replay the next dead letters of a plan.
{include queries/replay.sql moment=dead_at}
