"""Ways to make an exported program harmful: each changes the files of a sound archive.

`FIRES` run code in torch itself (at loading, or when the program is run); the canary is a variable
of the environment. `QUIET` would need more than a file to show it, or only read or write files.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Files = MutableMapping[str, bytes]
MODEL = "models/model.json"
SAMPLES = "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
CANARY = "OPREP_CANARY"
CODE = f"__import__('os').environ.__setitem__('{CANARY}', 'fired')"
SUBTLE = CODE.replace("'", '"')


@dataclass(frozen=True)
class Attack:
    """A change of a program's files that makes it run code; `entry` is the one to be named."""

    name: str
    base: str
    change: Callable[[Files], None]
    entry: str = MODEL


def unpacked(data: bytes) -> dict[str, bytes]:
    """Give the files of an archive, without its root."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def zipped(files: Files, root: str = "archive", method: int = zipfile.ZIP_STORED) -> bytes:
    """Make an archive of files below a root."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(f"{root}/{name}" if root else name, data)
    return buffer.getvalue()


def edited(files: Files, entry: str, change: Callable[[Any], object]) -> None:
    """Change the JSON of an entry."""
    value = json.loads(files[entry])
    change(value)
    files[entry] = json.dumps(value).encode()


def pickle_that_runs(code: str) -> bytes:
    """Give a pickle that executes Python when it is loaded."""
    text = code.encode()
    return b"\x80\x02c__builtin__\nexec\nX" + len(text).to_bytes(4, "little") + text + b"\x85R."


def torch_file(pickled: bytes, **more: bytes) -> bytes:
    """Give a file as torch.save writes it, around a pickle."""
    files = {"data.pkl": pickled, "version": b"3\n", "byteorder": b"little", **more}
    return zipped(files, "a")


def graph(program: Any) -> Any:
    return program["graph_module"]["graph"]


def rename(value: Any, old: str, new: str) -> Any:
    """Give JSON in which a text stands in place of another one, keys included."""
    if isinstance(value, dict):
        return {new if k == old else k: rename(v, old, new) for k, v in value.items()}
    if isinstance(value, list):
        return [rename(item, old, new) for item in value]
    return new if value == old else value


def sample_inputs(files: Files) -> None:
    files[SAMPLES] = torch_file(pickle_that_runs(CODE))


def sample_inputs_of_torchscript(files: Files) -> None:
    more = {"constants.pkl": b"\x80\x02).", "code/__torch__.py": b""}
    files[SAMPLES] = torch_file(pickle_that_runs(CODE), **more)


def plain_sample_inputs(files: Files) -> None:
    files[SAMPLES] = pickle_that_runs(CODE)


def pickled_weight(files: Files) -> None:
    def change(table: Any) -> None:
        meta = next(iter(table["config"].values()))
        meta["use_pickle"] = True
        meta["path_name"] = "weight_9"

    edited(files, WEIGHTS, change)
    files["data/weights/weight_9"] = torch_file(pickle_that_runs(CODE))


def constant(prefix: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        meta = {"path_name": f"{prefix}0", "is_param": False, "use_pickle": True}
        edited(files, CONSTANTS, lambda table: table["config"].update(c={**meta, **NO_META}))
        files[f"data/constants/{prefix}0"] = pickle_that_runs(CODE)

    return change


NO_META = {"tensor_meta": None}
OBJECT = {"as_custom_obj": {"name": "c", "class_fqn": "a.B"}}


def legacy(folder: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        files[f"data/{folder}/model.pt"] = torch_file(pickle_that_runs(CODE))

    return change


def expression(text: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        def put(program: Any) -> None:
            meta = next(iter(graph(program)["tensor_values"].values()))
            meta["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}

        edited(files, MODEL, put)

    return change


def guard(text: str) -> Callable[[Files], None]:
    return lambda files: edited(files, MODEL, lambda program: program.update(guards_code=[text]))


def spec(change: Callable[[Any], object], which: str = "in_spec") -> Callable[[Files], None]:
    def put(program: Any) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        tree = json.loads(signature[which])
        change(tree[1])
        signature[which] = json.dumps(tree)

    return lambda files: edited(files, MODEL, put)


def factory(tree: Any) -> None:
    context = {"default_factory_module": "this", "default_factory_name": "s", "dict_context": []}
    tree["children_spec"][1] = {**tree["children_spec"][1], "context": context}
    tree["children_spec"][1]["type"] = "collections.defaultdict"


def enum_key(tree: Any) -> None:
    fqn = {"__enum__": True, "fqn": "this:s", "name": "x"}
    tree["children_spec"][1]["context"] = json.dumps([fqn])


def arguments(program: Any) -> None:
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    signature["forward_arg_names"] = [f'x=""",y={CODE}):\n    pass #']


def keyword(program: Any) -> None:
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    signature["forward_arg_names"] = None
    protocol, tree = json.loads(signature["in_spec"])
    odd = f'flag=""",y={CODE}):\n    pass #'
    tree["children_spec"][1]["context"] = json.dumps(["scale", odd])
    signature["in_spec"] = json.dumps([protocol, tree])


def nested_key(tree: Any) -> None:
    odd = f'\'"), {SUBTLE}, ("'
    tree["children_spec"][0]["children_spec"][1]["context"] = json.dumps([odd])


def value_name(program: Any) -> None:
    odd = f"g = 1\n{CODE}\ndef f():\n    g"
    inner = graph(program)
    node = json.loads(json.dumps(inner["nodes"][1]))
    node["name"] = node["outputs"][0]["as_tensor"]["name"] = odd
    inner["nodes"].append(node)
    inner["tensor_values"][odd] = next(iter(inner["tensor_values"].values()))


def parameter_name(files: Files) -> None:
    odd = '0") and __import__("this") and getattr(self, "weight'
    for entry in (MODEL, WEIGHTS):
        files[entry] = json.dumps(rename(json.loads(files[entry]), "0.weight", odd)).encode()


def text_input(program: Any) -> None:
    odd = {"as_string": f"x' or {SUBTLE} or '"}
    program["graph_module"]["signature"]["input_specs"][-1]["constant_input"]["value"] = odd
    graph(program)["inputs"][-1] = odd


def call(target: str, **arguments: Any) -> Callable[[Files], None]:
    """Let the last node call something else."""

    def put(program: Any) -> None:
        node = graph(program)["nodes"][-1]
        node["target"] = target
        if arguments:
            node["inputs"] = [
                {"name": name, "arg": value, "kind": 1} for name, value in arguments.items()
            ]

    return lambda files: edited(files, MODEL, put)


def library(files: Files) -> None:
    files["data/aotinductor/model/x.so"] = b"\x7fELF"


FIRES = (
    Attack("sample inputs", "plain", sample_inputs, SAMPLES),
    Attack("sample inputs as a plain pickle", "plain", plain_sample_inputs, SAMPLES),
    Attack("pickled weight", "plain", pickled_weight, "data/weights/weight_9"),
    Attack("opaque constant", "plain", constant("opaque_obj_"), "data/constants/opaque_obj_0"),
    Attack("legacy weights", "plain", legacy("weights"), "data/weights/model.pt"),
    Attack("legacy constants", "plain", legacy("constants"), "data/constants/model.pt"),
    Attack("expression", "plain", expression(CODE)),
    Attack("expression within a size", "plain", expression(f"Symbol('s0')*({CODE} or 1)")),
    Attack("guard", "plain", guard(f"{CODE} is None")),
    Attack("factory of a defaultdict", "plain", spec(factory)),
    Attack("enum as a key", "plain", spec(enum_key)),
    Attack("names of arguments", "plain", lambda files: edited(files, MODEL, arguments)),
    Attack("keyword", "rich", lambda files: edited(files, MODEL, keyword)),
    Attack("name of a parameter", "plain", parameter_name),
    Attack("text input", "text", lambda files: edited(files, MODEL, text_input)),
)


def bug(name: str, change: Callable[[Any], object], entry: str = MODEL) -> Attack:
    return Attack(name, "plain", lambda files: edited(files, entry, change), entry)


def payload(**fields: Any) -> Callable[[Any], None]:
    """Say something else of the first weight."""

    def change(table: Any) -> None:
        meta = next(iter(table["config"].values()))
        meta.update({key: value for key, value in fields.items() if key == "path_name"})
        meta["tensor_meta"].update({k: v for k, v in fields.items() if k != "path_name"})

    return change


def first_node(**fields: Any) -> Callable[[Any], None]:
    return lambda program: graph(program)["nodes"][0].update(fields)


def deep(levels: int) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        inner = b"[" * levels + b"]" * levels
        files[MODEL] = files[MODEL][:-1] + b', "more": ' + inner + b"}"

    return change


def without(entry: str) -> Attack:
    return Attack(f"no {entry}", "plain", lambda files: files.pop(entry) and None, entry)


def text_of(entry: str, data: bytes) -> Callable[[Files], None]:
    return lambda files: files.update({entry: data})


def much(value: int) -> list[dict[str, int]]:
    return [{"as_int": value}, {"as_int": 4}]


BROKEN = (
    without(MODEL),
    without(SAMPLES),
    without(WEIGHTS),
    without(CONSTANTS),
    without("archive_format"),
    without("archive_version"),
    without("data/weights/weight_0"),
    Attack("weight cut short", "plain", text_of("data/weights/weight_0", b"12345678"), WEIGHTS),
    Attack("weight of odd length", "plain", text_of("data/weights/weight_0", b"1" * 999), WEIGHTS),
    Attack("no bytes for a weight", "plain", text_of("data/weights/weight_0", b""), WEIGHTS),
    Attack("other archive", "plain", text_of("archive_format", b"pt3"), "archive_format"),
    Attack("other version", "plain", text_of("archive_version", b"9"), "archive_version"),
    Attack("big-endian", "plain", text_of("byteorder", b"big"), "byteorder"),
    Attack("two programs", "plain", lambda f: f.update({"models/b.json": f[MODEL]}), MODEL),
    Attack("other program", "plain", lambda f: f.update({"models/b.json": f.pop(MODEL)}), MODEL),
    Attack("no JSON", "plain", text_of(MODEL, b"{"), MODEL),
    Attack("list for a program", "plain", text_of(MODEL, b"[]"), MODEL),
    Attack("no UTF-8", "plain", text_of(MODEL, b'{"a": "\xff"}'), MODEL),
    Attack("not a number", "plain", text_of(MODEL, b'{"a": NaN}'), MODEL),
    Attack("201 levels", "plain", deep(200), MODEL),
    Attack("a million levels", "plain", deep(1_000_000), MODEL),
    Attack("brackets that do not match", "plain", text_of(MODEL, b'{"a": [}'), MODEL),
    bug("schema of the future", lambda p: p["schema_version"].update(major=9)),
    bug("schema of the past", lambda p: p["schema_version"].update(major=7)),
    bug("no schema", lambda p: p.pop("schema_version")),
    bug("schema version true", lambda p: p["schema_version"].update(major=True)),
    bug("no graph", lambda p: p["graph_module"].pop("graph")),
    bug("node without target", lambda p: graph(p)["nodes"][0].pop("target")),
    bug("target that is a number", first_node(target=3)),
    bug("inputs that are a text", first_node(inputs="x")),
    bug("input of two kinds", first_node(outputs=[{"as_int": 1, "as_bool": True}])),
    bug("input of an unknown kind", first_node(outputs=[{"as_code": "1"}])),
    bug("number that is too large", first_node(outputs=[{"as_int": 1 << 63}])),
    bug("number that is a truth", first_node(outputs=[{"as_int": True}])),
    bug("unknown dtype", first_node(outputs=[{"as_scalar_type": 99}])),
    bug("device", first_node(outputs=[{"as_device": {"type": "c;pu", "index": None}}])),
    Attack("expression that does not parse", "plain", expression("Symbol('s0'")),
    bug("guard that does not parse", lambda p: p.update(guards_code=["1 +"])),
    Attack("structure of another protocol", "plain",
           lambda files: edited(files, MODEL, lambda p: p["graph_module"]["module_call_graph"][0]
                                ["signature"].update(in_spec="[2, {}]"))),
    bug("path out of the archive", payload(path_name="../../models/model.json"), WEIGHTS),
    bug("path to another folder", payload(path_name="a/b"), WEIGHTS),
    bug("sizes beyond the bytes", payload(sizes=much(9)), WEIGHTS),
    bug("sizes that overflow", payload(sizes=much(1 << 62)), WEIGHTS),
    bug("negative size", payload(sizes=much(-8)), WEIGHTS),
    bug("steps beyond the bytes", payload(strides=much(1 << 40)), WEIGHTS),
    bug("negative offset", payload(storage_offset={"as_int": -1}), WEIGHTS),
    bug("offset beyond the bytes", payload(storage_offset={"as_int": 1}), WEIGHTS),
    bug("symbolic size", payload(sizes=[{"as_expr": {"expr_str": "s0"}}] * 2), WEIGHTS),
    bug("wider dtype", payload(dtype=8), WEIGHTS),
    Attack("sample inputs that are no pickle", "plain",
           text_of(SAMPLES, torch_file(b"\x80\x02}")), SAMPLES),
    Attack("sample inputs without a pickle", "plain",
           text_of(SAMPLES, zipped({"x": b""}, "a")), SAMPLES),
    Attack("sample inputs cut short", "plain",
           lambda files: files.update({SAMPLES: files[SAMPLES][:-9]}), SAMPLES),
)  # fmt: skip
"""Files that are no sound programs; no code is in them."""

QUIET = (
    Attack("TorchScript as sample inputs", "plain", sample_inputs_of_torchscript, SAMPLES),
    Attack("key within an input", "rich", spec(nested_key)),
    Attack("name of a value", "plain", lambda files: edited(files, MODEL, value_name)),
    Attack("custom object", "plain", constant("custom_obj_"), "data/constants/custom_obj_0"),
    Attack("compiled library", "plain", library, "data/aotinductor/model/x.so"),
    Attack("function of torch", "plain", call("torch.hub.load")),
    Attack("function of another module", "plain", call("os.system")),
    Attack("loading a library", "plain", call("torch.ops.load_library")),
    Attack("inside of an op", "plain", call("torch.ops.aten.gelu.__class__")),
    Attack("inline assembly", "plain", call("torch.ops.higher_order.inline_asm_elementwise")),
    Attack("compiled delegate", "plain", call("torch.ops.higher_order.aoti_call_delegate")),
    Attack("extension operator", "plain", call("#ns:op")),
    Attack("file of the machine", "plain", call("torch.ops.aten.from_file.default",
                                                filename={"as_string": "/etc/passwd"})),
    Attack("bundled object", "plain", call("torch.ops.aten.relu.default", self=OBJECT)),
    Attack("power that never ends", "plain", expression("Integer(10)**Integer(10**9)")),
    Attack("powers of powers", "plain",
           expression("Pow(Pow(Pow(Integer(9), Integer(64)), Integer(64)), Integer(64))")),
    Attack("number without end", "plain", expression("TruncToInt(Float('1e999999999'))")),
    Attack("name of a symbol", "plain", expression("Symbol('s0;x', integer=True)")),
    Attack("lambda as a size", "plain", expression("(lambda: 1)()")),
    Attack("attribute of a size", "plain", expression("Symbol('s0').__class__")),
)  # fmt: skip
