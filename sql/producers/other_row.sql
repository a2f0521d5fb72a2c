select exists (select from %s as t where t.{id} = $1 and t.{id}::text = $2)
