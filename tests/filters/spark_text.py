"""An expression tree as Spark SQL text with `try_` functions: the independent oracle's side of contract 9.

Conversions are left out, so that Spark's own type coercion is what ours is compared with.
"""

from headgate.filters.expr import (
    And,
    Arithmetic,
    Call,
    Cast,
    ColumnRef,
    Compare,
    Element,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Parameter,
    Rlike,
    StructField,
)
from headgate.filters.render import quote_text, render
from headgate.filters.types import is_float, is_integer, is_list, name_of
from tests.filters.rows import CONTEXT

_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}


def spark_text(node) -> str:  # noqa: C901
    """The oracle's text of a tree."""
    match node:
        case Cast():
            return spark_text(node.value)
        case Literal():
            return f"({render(node)})"
        case ColumnRef():
            return f"`{node.name}`"
        case Parameter():
            return _constant(CONTEXT[node.name], name_of(node.type))
        case StructField():
            return f"{spark_text(node.base)}.{node.name}"
        case Element():
            if is_list(node.base.type):
                return f"get({spark_text(node.base)}, {spark_text(node.key)})"
            return f"try_element_at({spark_text(node.base)}, {spark_text(node.key)})"
        case Arithmetic(op="div"):
            one, other = spark_text(node.left), spark_text(node.right)
            return f"if({other} = 0 or ({one} = -9223372036854775808L and {other} = -1), null, {one} div {other})"
        case Arithmetic():
            return f"{_TRY[node.op]}({spark_text(node.left)}, {spark_text(node.right)})"
        case Negate():
            value = spark_text(node.value)
            zero = f"cast(0 as {name_of(node.type)})"
            return f"try_subtract({zero}, {value})" if is_integer(node.type) else f"(-{value})"
        case Call():
            return _call(node)
        case Compare():
            return f"({spark_text(node.left)} {node.op} {spark_text(node.right)})"
        case In():
            return f"({spark_text(node.value)} in ({', '.join(map(spark_text, node.options))}))"
        case Like():
            return f"({spark_text(node.value)} like {quote_text(node.pattern)})"
        case Rlike():
            return f"({spark_text(node.value)} rlike {quote_text(node.pattern)})"
        case IsNull():
            return f"({spark_text(node.value)} is null)"
        case Not():
            return f"(not {spark_text(node.item)})"
        case And():
            return "(" + " and ".join(map(spark_text, node.items)) + ")"
        case Or():
            return "(" + " or ".join(map(spark_text, node.items)) + ")"
    raise AssertionError(type(node))


def _constant(value, kind: str) -> str:
    if isinstance(value, list):
        return f"cast(array({', '.join('null' if one is None else quote_text(str(one)) for one in value)}) as {kind})"
    return f"cast({quote_text(str(value))} as {kind})"


def _call(node: Call) -> str:
    args = [spark_text(arg) for arg in node.args]
    if node.name == "abs" and is_integer(node.type):
        zero = f"cast(0 as {name_of(node.type)})"
        return f"if({args[0]} < 0, try_subtract({zero}, {args[0]}), {args[0]})"
    if node.name == "round" and is_integer(node.type):
        return f"try_cast(round(cast({args[0]} as decimal(20,0)), {args[1]}) as {name_of(node.type)})"
    if node.name in ("floor", "ceil") and is_float(_inner(node.args[0]).type):
        beyond = f"{args[0]} >= 9223372036854775808D or {args[0]} < -9223372036854775808D"
        return f"if(({beyond}) and not isnan({args[0]}), null, {node.name}({args[0]}))"
    if node.name == "element_at":
        return f"try_element_at({args[0]}, {args[1]})"
    if node.name == "distance":
        x1, y1, x2, y2 = (f"cast({arg} as double)" for arg in args)
        return f"sqrt(({x1} - {x2}) * ({x1} - {x2}) + ({y1} - {y2}) * ({y1} - {y2}))"
    return f"{node.name}({', '.join(args)})"


def _inner(node):
    return node.value if isinstance(node, Cast) else node
