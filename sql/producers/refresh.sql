-- The body of an attachment that refreshes. It writes to the outbox only.
begin
    if tg_op = 'INSERT' then
        {inserted};
    elsif tg_op = 'UPDATE' then
        {updated};
    else
        {deleted};
    end if;
    return null;
end
