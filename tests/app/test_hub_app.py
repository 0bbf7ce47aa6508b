"""The app for Flower Hub, judged by Flower's own rules for what may be published."""

import importlib.util
import io
import zipfile
from importlib import import_module

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from processes import ROOT, python

flower = import_module("flwr.cli.app_cmd.publish")  # the package has a function of that name


spec = importlib.util.spec_from_file_location("hub_app", ROOT / ".ci" / "hub_app.py")
hub = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hub)


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hub") / "fbo-tuning"
    python(ROOT / ".ci" / "hub_app.py", directory, "--publisher", "someone-else")
    return directory


def test_flower_would_publish_it(app):
    config, warnings = load_and_validate(app / "pyproject.toml", check_module=False)
    assert warnings in ([], None)
    flower._validate_app_name(app.name, "directory")
    flower._validate_description(config["project"]["description"])
    assert flower._get_declared_license_file(app) == (app / "LICENSE").resolve()
    files = flower._collect_file_paths(app)
    flower._validate_files(files)
    assert config["tool"]["flwr"]["app"]["publisher"] == "someone-else"
    assert {path.suffix for path in files} == {".py", ".toml", ".md", ""}


def test_its_bundle_has_the_current_format_and_needs_no_package_of_ours(app, tmp_path):
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        bundle.extractall(tmp_path)
    assert not (tmp_path / "fbo_flower" / "cli").exists()
    script = (
        "import sys, fbo_flower; from fbo_flower.app import client_app, server_app; "
        "assert fbo_flower.__file__.startswith(sys.argv[1]), fbo_flower.__file__; "
        "print(type(server_app.app).__name__, type(client_app.app).__name__)"
    )
    own = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    assert "ServerApp" in python("-c", script, tmp_path, cwd=tmp_path, **own).stdout


def test_its_page_explains_every_setting(app):
    text = (app / "README.md").read_text()
    config, _ = load_and_validate(app / "pyproject.toml", check_module=False)
    for key in config["tool"]["flwr"]["app"]["config"]:
        assert f"| `{key}` |" in text


def test_names_that_flower_refuses_and_a_directory_with_files_are_refused(app):
    for directory, publisher, said in (
        (app.with_name("Upper"), "me", "directory: expected 2 to 32"),
        (app.with_name("a" * 33), "me", "directory: expected 2 to 32"),
        (app.with_name("app"), "No Body", "--publisher: expected 2 to 32"),
        (app, "me", "directory: expected a new or empty one"),
    ):
        with pytest.raises(SystemExit, match=said):
            hub.write(directory, publisher)
