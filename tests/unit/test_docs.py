"""The documentation tells the truth: what it names exists, and what exists is in it."""

import ast
import importlib
import re
import shlex
import sqlite3
import tomllib

import click
import pytest

import pgpaces
from pgpaces.cli import specs
from pgpaces.cli.main import HELP
from pgpaces.core import errors, toml_files
from pgpaces.server import profiles
from pgpaces.spec import costs, experiment_file, load, spec, workload
from pgpaces.spec.workload import commands_in
from pgpaces.store.store import Store
from pgpaces.trial.request import target_of
from tests.unit.documented import (
    BLOCKS,
    PAGES,
    ROOT,
    all_commands,
    blocks,
    command_lines,
    generator,
    name_of,
    parsed,
)

# Pages about pgpaces itself, in no list for users.
INTERNALS = ROOT / "docs" / "internals"
LISTED = {page for page in PAGES[:-1] if page.parent != INTERNALS}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page):
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


INLINE = re.compile(r"(?<!`)`(pgpaces [^`]+)`(?!`)")
# Sessions that pgpaces opens have names like its commands: `pgpaces admin`.
SESSIONS = {"admin", "sensor", "host", "guard", "init", "plans"}


def inline_commands():
    """The words behind `pgpaces` within a sentence, with the page that each is on."""
    found = []
    for page in PAGES:
        text = BLOCKS.prose(page.read_text(encoding="utf-8"))
        words = [shlex.split(code)[1:] for code in INLINE.findall(text)]
        found += [(name_of(page), each) for each in words if each[0] not in SESSIONS]
    return found


PATHS = dict(all_commands())
SHELL_COMMANDS = [(page, words) for page, code in blocks("sh") for words in command_lines(code)]


def test_generated_parts_are_up_to_date():
    stale = [name_of(page) for page in generator().outdated()]
    assert stale == [], "run: python docs/generate.py"


def options_of(path):
    """What the reference says of each option of a command, where it says it."""
    section = text_of("reference/cli.md").split(f"\n## {path}\n")[1].split("\n## ")[0]
    found = {}
    for line in re.findall(r"^- (.*)$", section, re.MULTILINE):
        if shared := re.match(r"(All options of|As in) \[`([^`]+)`\]\(#[^)]*\)([^`]*)", line):
            there, names = options_of(f"pgpaces {shared[2]}"), option_names(line[shared.end() :])
            # An option is named by its long name, and described in one line.
            lines = {there[name] for name in names}
            names = {name for name in there if there[name] in lines}
            chosen = there.keys() - names if shared[3].strip().endswith("except") else names
            found |= {name: there[name] for name in chosen}
        else:
            found |= dict.fromkeys(option_names(line.split("`")[1]), line)
    return found


def option_names(text):
    return set(re.findall(r"(?<![\w\[-])--?[\w?][\w-]*", text))


def test_every_command_and_option_is_in_the_reference():
    for path, command in all_commands():
        told = options_of(path)
        own = HELP.get(path.removeprefix("pgpaces "), {}).get("options", {})
        shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        names = {name for option in shown for name in (*option.opts, *option.secondary_opts)}
        assert told.keys() == names >= {f"--{name}" for name in own}, path
        for option in shown:
            help_ = re.sub(r"\s*\[[^\]]*\]", "", option.help or "").strip()
            assert help_, (path, option.opts[0])
            assert help_ in told[option.opts[0]], (path, option.opts[0])


def test_every_exit_code_is_on_its_page():
    codes = {each.exit_code for each in vars(errors).values() if hasattr(each, "exit_code")}
    for code in codes | {0, 1, 2, 30, 31, 32, 130}:
        assert f"\n- **{code}**" in text_of("reference/exit-codes.md"), code


def test_every_column_of_the_store_is_in_the_reference(tmp_path):
    Store.open(tmp_path / "results.db")
    reference = text_of("reference/store.md")
    with sqlite3.connect(tmp_path / "results.db") as store:
        tables = [
            name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        for table in tables:
            assert f"**{table}**" in reference
            section = reference.split(f"**{table}**")[1].split("\n**")[0]
            for _, column, *_ in store.execute(f"PRAGMA table_info({table})"):
                prefix = re.sub(r"_(count|sum_ns|square_sum|max_ns|histogram)$", "_...", column)
                assert f"`{prefix}`" in section, (table, column)


def test_every_variable_that_connections_read_is_in_the_reference():
    source = ROOT / "crates" / "engine" / "src" / "conninfo"
    code = "".join(file.read_text(encoding="utf-8") for file in source.glob("*.rs"))
    reference = text_of("reference/environment.md")
    for variable in set(re.findall(r'"(PG[A-Z]+)"', code)):
        assert f"`{variable}`" in reference, variable


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_and_file_of_a_page_exists_and_it_knows_no_machine(page):
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            if anchor:
                assert anchor in anchors(target.read_text(encoding="utf-8")), link
    for name in re.findall(r"`((?:tests|bench|crates|examples|python)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for place in (str(ROOT), "/work/", "/root/", "/home/", "/tmp/"):
        assert place not in text


def test_the_map_and_the_navigation_of_the_site_name_every_page():
    linked = {(ROOT / "docs" / link).resolve() for link in LINK.findall(text_of("README.md"))}
    assert LISTED - {ROOT / "docs" / "README.md"} <= linked
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"[- ](\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted(str(p.relative_to(ROOT / "docs")) for p in LISTED)


EXAMPLES = [
    (path, words)
    for path, command in all_commands()
    for words in command_lines((command.epilog or "").replace("\b", ""))
]


@pytest.mark.parametrize(
    ("place", "words"), [*SHELL_COMMANDS, *EXAMPLES], ids=lambda value: str(value)[:60]
)
def test_every_printed_command_line_and_its_load_would_be_accepted(place, words):
    command, given = parsed(words)
    if command.name == "run" and given:
        name = str(given["workload"])
        base = workload.find(name if name in workload.shipped() else "select-only")
        values = spec.complete(spec.read(specs.spec({**given, "like": None})[0]), base.load)
        load.trial_plan(values)
        target_of(values)


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_printed_python_compiles_and_names_what_the_package_has(page, code):
    compile(code, page, "exec")
    names = {"pgpaces": pgpaces}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in names:
                assert hasattr(names[node.value.id], node.attr), ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pgpaces"):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, each.name) for each in node.names), ast.unparse(node)


def anchors(text):
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", workload.shipped())
def test_every_shipped_workload_is_listed_with_its_variants(name):
    [row] = [
        line
        for line in text_of("workloads/README.md").replace("\n  ", " ").splitlines()
        if line.startswith(f"- [`{name}`](")
    ]
    for variant in workload.find(name).variants:
        assert f"`{variant}`" in row


@pytest.mark.parametrize(("page", "words"), inline_commands(), ids=lambda value: str(value)[:60])
def test_a_command_named_in_a_sentence_exists_with_its_options(page, words):
    path = next(n for n in range(len(words), -1, -1) if " ".join(["pgpaces", *words[:n]]) in PATHS)
    assert path or words == ["--version"], words
    command = PATHS[" ".join(["pgpaces", *words[:path]])]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    if command.name != "pgbench":
        asked = {word.partition("=")[0] for word in words[path:] if word.startswith("-")}
        assert asked <= known | {"--help", "--help-all", "-h"}, words


@pytest.mark.parametrize(("page", "code"), blocks("pgbench"))
def test_every_printed_script_parses(page, code):
    assert commands_in(page, code)


@pytest.mark.parametrize(("page", "code"), blocks("toml"))
def test_every_printed_toml_is_a_workload_a_profile_a_host_file_or_of_an_experiment(
    page, code, tmp_path
):
    found = tomllib.loads(code)
    if "description" in found:
        toml_files.table(workload.File, found)
    elif "settings" in found:
        (tmp_path / "profile.toml").write_text(code)
        profiles.read(tmp_path / "profile.toml")
    elif found.keys() <= costs.KEYS.keys():
        (tmp_path / "host.toml").write_text(code)
        costs.find(tmp_path / "host.toml")
    else:
        (tmp_path / "experiment.toml").write_text(code)
        experiment_file.read(tmp_path / "experiment.toml")
