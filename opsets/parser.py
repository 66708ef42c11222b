"""Read an equation or a condition: text goes in, a syntax tree comes out, nothing is evaluated."""

from __future__ import annotations

from collections.abc import Iterator

from oprep.opsets.grammar import RESERVED, ExpressionParser
from oprep.opsets.rule import Source
from oprep.opsets.syntax import (
    Binary,
    Call,
    Choose,
    Equation,
    Expression,
    ListOf,
    Maybe,
    Name,
    Rest,
    Statement,
    Unary,
)
from oprep.opsets.tokens import Text, Token

MAX_DEPTH = 128
"""Levels of a tree: a sum of 129 terms is refused, since readers of the tree are recursive."""


def parse_equation(text: str, where: Source, *, spans_lines: bool = True) -> Equation:
    """Read statements and results; raise OprepError (exit RULES) with a caret at the mistake.

    `where` is the place of the text's first character; `spans_lines` is False where the newlines
    of `text` are escapes on one line of the file.
    """
    return _EquationParser(Text(text, where, spans_lines)).equation()


def parse_condition(text: str, where: Source, *, spans_lines: bool = True) -> Expression:
    """Read one condition, as `when` has it; raise OprepError (exit RULES) at the mistake."""
    return _EquationParser(Text(text, where, spans_lines), logic=True).condition()


def children(expression: Expression) -> tuple[Expression, ...]:
    """Give the direct parts of an expression, in the order in which they are written."""
    match expression:
        case ListOf(items=items):
            return items
        case Call(arguments=arguments, keywords=keywords):
            return (*arguments, *(value for _, value in keywords))
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Choose(condition=condition, yes=yes, no=no):
            return (yes, condition, no)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Give the expression and all its parts, in the order in which they are written."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(reversed(children(part)))


def names(expression: Expression) -> list[str]:
    """Give every variable in an expression once, in order of first appearance, without `_`."""
    found: dict[str, None] = {}
    for part in walk(expression):
        if isinstance(part, Name | Maybe | Rest) and part.name != "_":
            found[part.name] = None
    return list(found)


class _EquationParser(ExpressionParser):
    """Reads statements, and checks that each name is bound once and before it is read."""

    def __init__(self, text: Text, logic: bool = False) -> None:
        super().__init__(text, logic)
        self.bound: set[str] = set()
        self.read: set[str] = set()

    def equation(self) -> Equation:
        statements: list[Statement] = []
        results: tuple[Expression, ...] = ()
        returned = False
        self.skip_ends()
        if self.token.kind == "end":
            raise self.error("the equation is empty", 0, "write what is meant")
        while self.token.kind != "end":
            if returned:
                raise self.error("nothing can follow `return`", None, "move it up")
            if results:
                message = "only the last statement can do without a name"
                raise self.error(message, results[0].at, "write `y = …` before it")
            if returned := self.at_word("return"):
                results = self.returned()
            elif targets := self.targets():
                statements.append(self.statement(targets))
            else:
                results = (self.result(),)
            self.end_statement()
        results = results or self.last_targets(statements)
        for root in (*(statement.value for statement in statements), *results):
            self.check_depth(root)
        return Equation(tuple(statements), results, self.text.text)

    def condition(self) -> Expression:
        self.tokens = [token for token in self.tokens if token.kind != "newline"]
        if self.token.kind == "end":
            raise self.error("the condition is empty", 0, "write it, or leave `when` out")
        expression = self.expression()
        if self.token.kind != "end":
            raise self.unexpected("the end of the condition", "join conditions with `and`")
        self.check_depth(expression)
        for part in walk(expression):
            if isinstance(part, Maybe | Rest) or (isinstance(part, Name) and part.name == "_"):
                message = "a condition reads bound names only"
                raise self.error(message, part.at, "write the name alone")
        return expression

    def skip_ends(self) -> None:
        while self.token.kind == "newline" or self.at_operator(";"):
            self.take()

    def end_statement(self) -> None:
        if self.at_operator(","):
            message = "`,` separates results only behind `return`"
            raise self.error(message, None, "write `return` before the first")
        if not (self.token.kind in ("newline", "end") or self.at_operator(";")):
            raise self.unexpected("an operator or the end", "add an operator or `;`")
        self.skip_ends()

    def returned(self) -> tuple[Expression, ...]:
        self.take()
        results = [self.result()]
        while self.at_operator(","):
            self.take()
            results.append(self.result())
        return tuple(results)

    def result(self) -> Expression:
        result = self.expression()
        if isinstance(result, Name) and result.name == "_":
            raise self.error("`_` cannot be a result", result.at, "give the value a name")
        return result

    def targets(self) -> list[Token]:
        """Take `a, b =`, if it comes next."""
        start = self.index
        found: list[Token] = []
        while self.token.kind == "name":
            found.append(self.take())
            if self.at_operator("="):
                self.take()
                return found
            if not self.at_operator(","):
                break
            self.take()
        self.index = start
        return []

    def statement(self, targets: list[Token]) -> Statement:
        value = self.expression()
        self.read.update(names(value))
        for token in targets:
            if token.text in RESERVED or "." in token.text:
                raise self.error(f"`{token.text}` cannot be a variable", token.at, "rename it")
            if token.text != "_" and token.text in self.bound:
                raise self.error(f"`{token.text}` is bound twice", token.at, "rename one of them")
            if token.text in self.read:
                message = f"`{token.text}` is read before it is bound"
                raise self.error(message, token.at, "rename one of them")
            self.bound.add(token.text)
        if len(targets) > 1 and not isinstance(value, Call):
            message = f"only a call can give {len(targets)} values"
            raise self.error(message, value.at, "write one name before `=`")
        return Statement(tuple(token.text for token in targets), value, targets[0].at)

    def last_targets(self, statements: list[Statement]) -> tuple[Expression, ...]:
        last = statements[-1]
        results = tuple(Name(name, last.at) for name in last.targets if name != "_")
        if not results:
            raise self.error("the equation has no result", last.at, "give the value a name")
        return results

    def check_depth(self, root: Expression) -> None:
        level = [root]
        for _ in range(MAX_DEPTH):
            level = [part for expression in level for part in children(expression)]
            if not level:
                return
        message = f"more than {MAX_DEPTH} operations feed one another"
        raise self.error(message, root.at, "split it into statements")
