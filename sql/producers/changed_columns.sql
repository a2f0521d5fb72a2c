-- The rows of an UPDATE in which one of the columns changed, old and new. The primary key pairs them: transition tables
-- do not say which rows belong together. What is stored is compared, for every type, json included.
(select before.* from search_outbox_old as before left join search_outbox_new as after on {same_row}
  where {after_gone} or {differs}
 union all
 select after.* from search_outbox_new as after left join search_outbox_old as before on {same_row}
  where {before_gone} or {differs}) as changed
