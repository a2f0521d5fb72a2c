"""How changes of tables lead to documents of a view: `tree` reads PostgreSQL's stored query, `frames` and `branches`
what it joins, `paths` the way from a row to ids, `derivation` the attachments. `facts` is the catalogue.
"""
