-- What a plan would replay of the published messages.
{include queries/letter_plan.sql moment=published_at}
