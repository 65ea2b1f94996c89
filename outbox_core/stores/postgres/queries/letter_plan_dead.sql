-- What a plan would change of the dead letters.
{include queries/letter_plan.sql moment=dead_at}
