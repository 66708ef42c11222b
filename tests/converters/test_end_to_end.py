"""What a conversion does as a whole: passes, overlaps, names, functions, plans, expectations."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from oprep.converters.pipeline import convert, list_ops
from oprep.opsets.errors import ExitCode, OprepError
from tests.corpus.converting import GELU, converted, explained, graphs, nodes, of_type, sites
from tests.corpus.real import RULES, SAMPLES
from tests.corpus.running import feeds_for, run_all


def model(body: str, *, opset: int = 18, imports: str = "", more: str = "") -> onnx.ModelProto:
    """Make a model with input `x` and output `y` of four numbers."""
    built = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset} {imports}]>
        main (float[4] x) => (float[4] y) {{ {body} }} {more}"""
    )
    onnx.checker.check_model(built)
    return built


def op(name: str, body: str) -> str:
    """Declare a custom op of domain `acme`."""
    return f'[[op]]\nname = "acme::{name}"\nbody = "{body}"\n'


def rule(name: str, pattern: str, replacement: str, more: str = "") -> str:
    """Write a rule."""
    lines = [f'name = "{name}"', f'replace = "{pattern}"', f'with = "{replacement}"', more]
    return "[[rule]]\n" + "\n".join(lines) + "\n"


def assert_same_numbers(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Compare two models in ONNX Runtime."""
    feeds = feeds_for(before)
    want, got = run_all([(before, feeds), (after, feeds)])
    for one, two in zip(want, got, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def refused(built: onnx.ModelProto, text: str, code: ExitCode) -> OprepError:
    """Convert what must be refused; give the error."""
    with pytest.raises(OprepError) as caught:
        converted(built, text=text)
    assert caught.value.exit_code == code
    return caught.value


def test_a_rule_does_not_see_what_another_put_in() -> None:
    built = model("a = Relu (x) y = Tanh (a)")
    text = rule("one", "relu(x)", "Tanh(x)") + rule("two", "tanh(x)", "Relu(x)")
    report, artifact = converted(built, text=text)
    assert [node.op_type for node in artifact.graph.node] == ["Tanh", "Relu"]
    assert [len(outcome.sites) for outcome in report.rules] == [1, 1]


def test_adjacent_sites_that_feed_each_other_are_all_replaced() -> None:
    chain = "".join(f"v{i + 1} = Relu (v{i}) " for i in range(1, 9))
    built = model(f"v1 = Relu (x) {chain} y = Relu (v9)")
    text = op("relu", "relu(x)") + rule("r", "relu(x)", "acme::relu(x)")
    report, artifact = converted(built, text=text)
    assert report.matches == 10
    assert_same_numbers(built, artifact)


def test_of_two_overlapping_matches_the_one_with_more_nodes_wins() -> None:
    built = model(
        """three = Constant <value: tensor = float {3.0}> ()
        zero = Constant <value: tensor = float {0.0}> ()
        six = Constant <value: tensor = float {6.0}> ()
        lone = Clip (x, zero, six)
        a = Add (lone, three) b = Clip (a, zero, six) c = Mul (lone, b) y = Div (c, six)"""
    )
    text = op("relu6", "clamp(x, 0, 6)") + op("hs", "x * clamp(x + 3, 0, 6) / 6")
    text += rule("small", "clamp(x, 0, 6)", "acme::relu6(x)")
    text += rule("large", "x * clamp(x + 3, 0, 6) / 6", "acme::hs(x)")
    report, artifact = converted(built, text=text)
    assert {outcome.rule: len(outcome.sites) for outcome in report.rules} == {
        "small": 1,
        "large": 1,
    }
    assert Counter(n.op_type for n in artifact.graph.node) == {"relu6": 1, "hs": 1}
    assert_same_numbers(built, artifact)


def test_of_two_equal_matches_the_first_rule_wins() -> None:
    built = model("y = Relu (x)")
    text = op("a", "relu(x)") + op("b", "relu(x)")
    text += rule("first", "relu(x)", "acme::a(x)") + rule(
        "second", "Relu(x)", "acme::b(x)", 'expect = ">=0"'
    )
    report, _ = converted(built, text=text)
    assert [len(outcome.sites) for outcome in report.rules] == [1, 0]


def test_a_pattern_with_two_outputs_is_sorted_again() -> None:
    built = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        main (float[4] x) => (float[4] y, float[4] z) {
            [gate] s = Sigmoid (x) [early] z = Relu (s) [late] y = Mul (x, s)
        }"""
    )
    text = '[[op]]\nname = "acme::both"\nschema = "(Tensor x) -> (Tensor, Tensor)"\n'
    text += 'body = "s = sigmoid(x); return s, x * s"\n'
    text += rule("two", "s = sigmoid(x); return s, x * s", "acme::both(x)")
    report, artifact = converted(built, text=text)
    assert report.matches == 1
    onnx.checker.check_model(artifact)
    assert [node.op_type for node in artifact.graph.node] == ["both", "Relu"]
    assert_same_numbers(built, artifact)


def test_a_match_that_would_make_a_cycle_is_refused_with_the_reason() -> None:
    built = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        main (float[4] x) => (float[4] y, float[4] z) {
            [gate] s = Sigmoid (x) [between] w = Exp (s) [late] y = Mul (s, w) z = Neg (s)
        }"""
    )
    text = '[[op]]\nname = "acme::both"\nschema = "(Tensor x, Tensor w) -> (Tensor, Tensor)"\n'
    text += 'body = "s = sigmoid(x); return s, w * s"\n'
    text += rule("two", "s = sigmoid(x); return s, w * s", "acme::both(x, w)", 'expect = ">=0"')
    report = explained(built, text)
    assert report.matches == 0
    (outcome,) = report.rules
    assert any("depends on its output" in miss.reason for miss in outcome.misses), outcome.misses


def test_new_names_avoid_every_name_of_the_model() -> None:
    text = rule("r", "HardSigmoid(x, alpha=a, beta=b)", "clamp(a * x + b, 0, 1)")
    built = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        main (float[4] x, bool flag) => (float[4] y) {
            first = HardSigmoid (x)
            kept = Relu (first)
            y = If (flag) <
                then_branch = t () => (float[4] tv) { tv = HardSigmoid (kept) },
                else_branch = e () => (float[4] ev) { other = Relu (x) ev = Neg (other) }
            >
        }"""
    )
    _, artifact = converted(built, text=text)
    old = {value for node in nodes(built) for value in [*node.input, *node.output]}
    new = {value for node in nodes(artifact) for value in [*node.input, *node.output]}
    new |= {t.name for graph in graphs(artifact.graph) for t in graph.initializer}
    assert new - old
    for taken in sorted(new - old):
        for mine in ("kept", "other"):
            renamed = onnx.ModelProto()
            renamed.CopyFrom(built)
            for node in nodes(renamed):
                for field in (node.input, node.output):
                    for index, value in enumerate(field):
                        if value == mine:
                            field[index] = taken
            _, again = converted(renamed, text=text)
            onnx.checker.check_model(again, full_check=True)
            made = [value for node in nodes(again) for value in node.output]
            assert len(made) == len(set(made))


def test_foreign_domains_are_left_alone() -> None:
    built = model(
        "a = com.microsoft.FastGelu (x) b = foreign.Relu (a) y = Relu (b)",
        imports=', "com.microsoft" : 1, "foreign" : 3',
    )
    text = op("relu", "relu(x)") + rule("r", "relu(x)", "acme::relu(x)")
    report, artifact = converted(built, text=text)
    assert report.matches == 1
    assert list(artifact.graph.node)[:2] == list(built.graph.node)[:2]
    imports = {entry.domain: entry.version for entry in artifact.opset_import}
    assert imports == {"": 18, "com.microsoft": 1, "foreign": 3, "acme": 1}


def test_inside_a_function_the_import_is_added_there_and_to_the_model() -> None:
    _, artifact = converted(SAMPLES / "functions.onnx", rules=[RULES / "gelu.toml"])
    assert "com.acme" in {entry.domain for entry in artifact.opset_import}
    for function in artifact.functions:
        uses = any(node.domain == "com.acme" for node in function.node)
        assert uses == ("com.acme" in {entry.domain for entry in function.opset_import})
    assert len(of_type(artifact, "com.acme", "Gelu")) == 1


FUNCTION = """<domain: "acme", opset_import: ["" : 18]> gelu (x) => (y) {{
    root = Constant <value: tensor = float {{{root}}}> ()
    one = Constant <value: tensor = float {{1.0}}> ()
    half = Constant <value: tensor = float {{0.5}}> ()
    a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)
}}"""
WRITTEN = """root = Constant <value: tensor = float {1.4142135}> ()
    one = Constant <value: tensor = float {1.0}> () half = Constant <value: tensor = float {0.5}> ()
    a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)"""
ACME = GELU.replace('onnx = { domain = "com.acme", type = "Gelu", version = 1 }\n', "")


def test_converting_twice_finds_nothing_and_reuses_the_body() -> None:
    built = model(WRITTEN)
    _, once = converted(built, text=ACME)
    report, twice = converted(once, text=f'{ACME}expect = ">=0"\n')
    assert report.status == "unchanged"
    assert twice == once
    second = onnx.ModelProto()
    second.CopyFrom(once)
    second.graph.node.extend(model(WRITTEN).graph.node)
    for node in list(second.graph.node)[1:]:
        node.input[:] = ["y" if v == "x" else f"again_{v}" for v in node.input]
        node.output[:] = [f"again_{v}" for v in node.output]
    second.graph.output[0].name = "again_y"
    report, artifact = converted(second, text=ACME)
    assert report.matches == 1
    assert len(artifact.functions) == 1
    assert_same_numbers(second, artifact)


def test_another_function_of_the_ops_name_is_refused_with_both_shown() -> None:
    built = model(
        f"{WRITTEN.replace('y = Mul', 'e = Mul')} y = acme.gelu (e)",
        imports=', "acme" : 1',
        more=FUNCTION.format(root="1.5"),
    )
    error = refused(built, ACME, ExitCode.EXPECTATION)
    assert "acme::gelu" in str(error)


def test_another_version_of_the_ops_domain_is_refused() -> None:
    built = model(
        f"{WRITTEN.replace('y = Mul', 'e = Mul')} y = acme.other (e)", imports=', "acme" : 2'
    )
    error = refused(built, ACME, ExitCode.EXPECTATION)
    assert "2" in str(error)
    assert "1" in str(error)


def test_a_body_that_the_opset_cannot_say_is_refused_with_the_one_that_can() -> None:
    built = model("y = Relu (x)", opset=7)
    text = op("odd", "relu(x) + 0 * erf(x)") + rule("r", "relu(x)", "acme::odd(x)")
    error = refused(built, text, ExitCode.EXPECTATION)
    assert "erf" in str(error).lower()
    assert "9" in str(error)


@pytest.mark.parametrize("expect", ["2", ">=2", "0"])
def test_an_expectation_that_is_not_met_names_rule_and_count(expect: str) -> None:
    built = model(WRITTEN)
    value = expect if expect.isdigit() else f'"{expect}"'
    error = refused(built, f"{ACME}expect = {value}\n", ExitCode.EXPECTATION)
    assert "`gelu`" in str(error)
    assert "1" in str(error)
    assert error.report is not None


def test_a_rule_that_matches_nothing_is_refused_unless_it_allows_that() -> None:
    built = model("y = Relu (x)")
    refused(built, ACME, ExitCode.EXPECTATION)
    report, artifact = converted(built, text=f'{ACME}expect = ">=0"\n')
    assert report.status == "unchanged"
    assert artifact == built


def test_a_shipped_opset_has_to_match_as_a_whole() -> None:
    built = model("y = Tanh (x)")
    with pytest.raises(OprepError) as caught:
        converted(built, opset=["activations"])
    assert caught.value.exit_code == ExitCode.EXPECTATION


def test_metadata_names_the_version_and_the_rules_and_nothing_of_the_output() -> None:
    _, artifact = converted(model(WRITTEN), text=ACME)
    written = {entry.key: entry.value for entry in artifact.metadata_props}
    assert set(written) == {"oprep.version", "oprep.rules"}


def test_the_sidecar_vouches_for_the_bytes_of_the_artifact(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    convert(SAMPLES / "encoder.onnx", rules=[SAMPLES / "gelu.toml"], output=output)
    statement = json.loads((tmp_path / "out.onnx.oprep.json").read_text())
    digests = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
    assert digests["out.onnx"] == hashlib.sha256(output.read_bytes()).hexdigest()
    text = json.dumps(statement)
    source = hashlib.sha256((SAMPLES / "encoder.onnx").read_bytes()).hexdigest()
    assert source in text
    assert hashlib.sha256((SAMPLES / "gelu.toml").read_bytes()).hexdigest() in text


def test_a_dry_run_finds_the_sites_and_writes_nothing(tmp_path: Path) -> None:
    report = convert(
        SAMPLES / "encoder.onnx",
        rules=[SAMPLES / "gelu.toml"],
        output=tmp_path / "out.onnx",
        dry_run=True,
    )
    assert (report.status, report.matches) == ("planned", 4)
    assert not list(tmp_path.iterdir())


def test_a_plan_is_applied_as_written_and_refused_for_another_model(tmp_path: Path) -> None:
    plan, rules = tmp_path / "plan.json", [SAMPLES / "gelu.toml"]
    convert(SAMPLES / "encoder.onnx", rules=rules, plan_out=plan)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json"]
    planned, straight = tmp_path / "planned.onnx", tmp_path / "straight.onnx"
    convert(SAMPLES / "encoder.onnx", rules=rules, plan=plan, output=planned, verify=False)
    convert(SAMPLES / "encoder.onnx", rules=rules, output=straight, verify=False)
    assert planned.read_bytes() == straight.read_bytes()
    other = onnx.load(SAMPLES / "encoder.onnx")
    other.doc_string = "another"
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    with pytest.raises(OprepError) as caught:
        convert(tmp_path / "other.onnx", rules=rules, plan=plan, output=tmp_path / "no.onnx")
    assert caught.value.exit_code == ExitCode.EXPECTATION
    assert not (tmp_path / "no.onnx").exists()


def test_list_ops_counts_every_region_and_says_what_would_match() -> None:
    table = list_ops(SAMPLES / "branches.onnx", rules=[RULES / "relu.toml"])
    counts = {row.op.rpartition("::")[2]: row.count for row in table.ops}
    wanted = Counter(node.op_type for node in nodes(onnx.load(SAMPLES / "branches.onnx")))
    assert counts == wanted
    (outcome,) = table.rules
    assert len(outcome.sites) == 3


def test_a_region_named_by_its_tensors_is_that_place_alone() -> None:
    report, artifact = converted(SAMPLES / "encoder.onnx", rules=[RULES / "region.toml"])
    assert ["layer.0" in site for site in sites(report)] == [True]
    assert len([node for node in artifact.graph.node if node.op_type == "Erf"]) == 3


def test_scope_limits_a_rule_to_module_paths() -> None:
    text = f'{GELU}scope = ["encoder.layer.*", "!encoder.layer.2.*"]\nexpect = 3\n'
    report, _ = converted(SAMPLES / "encoder.onnx", text=text)
    assert not [site for site in sites(report) if "layer.2" in site]
