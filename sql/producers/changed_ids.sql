-- The ids of an UPDATE's rows in which one of the columns changed, old and new. The primary key pairs the rows:
-- transition tables do not say which belong together. What is stored is compared, for every type, json included. A full
-- join is never a nested loop, so a plan that was made for one row serves 100,000.
(select pair.* from search_outbox_old as before full join search_outbox_new as after on {same_row}
  cross join lateral (values ({before}), ({after})) as pair ({names})
  where {before_gone} or {after_gone} or {differs}) as changed
