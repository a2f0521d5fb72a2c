"""How changes of tables lead to documents of a view: `tree` reads PostgreSQL's stored query, `branches` what it joins,
`paths` the way from a row to ids, `derivation` the attachments. Pure: `facts` holds what was read of the catalogue.
"""
