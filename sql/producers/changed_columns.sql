-- As changed_ids.sql, with whole rows for a query of --via; planned for each statement.
(select before.* from search_outbox_old as before left join search_outbox_new as after on {same_row}
  where {after_gone} or {differs}
 union all
 select after.* from search_outbox_new as after left join search_outbox_old as before on {same_row}
  where {before_gone} or {differs}) as changed
