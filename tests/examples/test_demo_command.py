"""The command `outbox demo` where the worked example is not at hand."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from outbox.cli import demo as module


def test_finds_the_example_in_a_checkout(tmp_path: Path) -> None:
    """The first root that holds the worked example wins; a folder that is only called so doesn't count."""
    (tmp_path / "empty" / "examples").mkdir(parents=True)
    package = tmp_path / "full" / "examples" / "statements" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    found = module.find_examples(tmp_path / "empty", tmp_path / "full")
    assert found == tmp_path / "full" / "examples"
    assert module.find_examples(tmp_path / "empty") is None


def test_installed_package_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the source the command ends with one clear message and starts nothing."""
    monkeypatch.setattr(module, "_CHECKOUT", tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(module.demo, [])
    assert result.exit_code == 1
    assert "checkout" in result.output
    assert len(result.output.splitlines()) == 1
