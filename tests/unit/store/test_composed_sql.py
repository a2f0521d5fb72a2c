"""No value from a row becomes SQL text. Values are bound or quoted by psycopg; text enters a statement only from files,
from literals, and at the places that are listed here, each with the reason why no row has a say in it."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "outbox"
# What runs a statement, and which argument it is.
RUNS = {"execute": 0, "executemany": 0, "rows": 0, "fetch_rows": 1, "fetch_row": 1}
OF_FILES = ("queries(", "self._sql[", "files.", "files(")
_TYPE = "the name of a column's type, from PostgreSQL's catalogue"
ALLOWED = {
    "producers/awaiting.py: call.by_percent.encode()": "a function of ours and the names of its parameters",
    "producers/writing.py: call.by_percent.encode()": "the same",
    "store/attach/attach.py: script": "statements that psycopg has put together, as text",
    "store/attach/installed.py: each.quoted_table": "a table's name, which PostgreSQL has quoted",
    "store/attach/via.py: via": "the query that the owner of a table attaches",
    "store/fanouts.py: (text or '').replace('%', '%%')": "a table and a query, from a table that only the owner writes",
    "store/entity_events.py: self.id_type": _TYPE,
    "store/attach/documents_view.py: column.shown": _TYPE,
    "store/filters.py: sql.replace('{entity_id_type}', type_name)": _TYPE,
    "reindex/key_bounds.py: self._events.id_type": _TYPE,
    "store/pooler.py: f'listen {channel}'": "a name of ours",
    "store/schema/adoption.py: query.format(sql.Identifier(column))": "quoted by psycopg",
    "store/schema/migrate.py: statement.encode()": "a migration's file",
    "store/view_shape.py: self.cast": _TYPE,
    "store/view_shape.py: self.operators": "a schema's name, from PostgreSQL's catalogue",
    "store/view_shape.py: condition": "of `refresh --where`: the operator's own SQL, read-only",
    "store/view_shape.py: text": "a file's text, given by the caller",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Names:
    """What a name of one module may stand for, wherever in it: all that is assigned to it."""

    def __init__(self, tree: ast.Module) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values.setdefault(name, []).append(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.values.setdefault(name, []).append(value)

    def of(self, text: ast.expr) -> list[ast.expr]:
        return self.values.get(text.id, [text]) if isinstance(text, ast.Name) else [text]


def is_plain(text: ast.expr, names: Names) -> bool:
    """A literal or a file's text, as it is."""
    match text:
        case ast.Constant():
            return True
        case ast.IfExp():
            return is_plain(text.body, names) and is_plain(text.orelse, names)
        case ast.BinOp(op=ast.Add()):
            return is_plain(text.left, names) and is_plain(text.right, names)
        case ast.Name(id=name):
            return name in names.values and all(is_plain(each, names) for each in names.of(text) if each is not text)
        case ast.Call(func=ast.Attribute(attr="encode", value=value)):
            return is_plain(value, names)
        case _:
            return ast.unparse(text).startswith(OF_FILES)


def is_pasted(text: ast.expr, names: Names) -> bool:
    """Text that is put together as text, outside psycopg's `sql`, which quotes."""
    match text:
        case ast.JoinedStr() | ast.BinOp(op=ast.Mod()):
            return True
        case ast.BinOp(op=ast.Add()):
            strings = (ast.Constant, ast.JoinedStr)
            joined = isinstance(text.left, strings) or isinstance(text.right, strings)
            return (joined and not is_plain(text, names)) or is_pasted(text.left, names) or is_pasted(text.right, names)
        case ast.Call(func=ast.Attribute(attr="format" | "replace" | "join" | "encode" as method, value=value)):
            if method == "encode" and is_plain(value, names):
                return False
            is_of_sql = all(
                "sql." in ast.unparse(each) or "_template(" in ast.unparse(each) for each in names.of(value)
            )
            return not is_of_sql
        case _:
            return False


def texts(function: Function) -> list[int]:
    names = [each for each in function.args.args if each.arg != "self"]
    kinds = [ast.unparse(each.annotation) if each.annotation else "" for each in names]
    return [place for place, kind in enumerate(kinds) if "LiteralString" in kind][:1]


def runs(tree: ast.Module) -> Iterator[ast.expr]:
    """What is run, given to a function of the module as text of SQL, or returned as such."""
    places = RUNS | {node.name: place for node in ast.walk(tree) if isinstance(node, Function) for place in texts(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in places and len(node.args) > places[name]:
                yield node.args[places[name]]
        if isinstance(node, Function) and "LiteralString" in ast.unparse(node.returns or ast.Constant(None)):
            yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)


def entries() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = Names(tree)
        raw = [
            node.args[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "sql.SQL"
        ]
        found = [text for text in raw if not is_plain(text, names)]
        found += [each for text in runs(tree) for each in names.of(text) if is_pasted(each, names)]
        yield from (f"{path.relative_to(PACKAGE)}: {ast.unparse(text)}" for text in found)


def test_text_enters_a_statement_only_where_no_row_has_a_say_in_it() -> None:
    found = set(entries())
    assert found - set(ALLOWED) == set(), "bind the value, or quote it as sql.Identifier or sql.Literal"
    assert set(ALLOWED) - found == set(), "no longer there: take it off the list"
