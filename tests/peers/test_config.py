"""peer.toml: what may stand in it, and what a person is told about what may not."""

from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from gadget_svm.peers.config import SECTIONS, ConfigError, load, template


def written(folder: Path, text: str) -> Path:
    path = folder / "peer.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed(folder: Path, **values: str):
    """The template with some lines replaced, or left out, by key."""
    lines = []
    for line in template("a").splitlines():
        key = line.removeprefix("# ").split(" =")[0]
        lines.append(line if key not in values else f"{key} = {values[key]}" if values[key] else "")
    return load(written(folder, "\n".join(lines)))


def test_the_template_loads_again_with_the_values_it_was_given(tmp_path):
    values = {
        "address": "a.example.org:7400",
        "join": ["b.example.org:7400", "[2001:db8::1]:7401"],
        "train": tmp_path / 'odd "name"\\ñ.svm',
        "test": "more/test.svm",
        "label": "outcome",
        "classes": ["yes", "no"],
        "features": 30,
        "zero_based": True,
        "lam": 1e-05,
        "scaling": "deviation",
        "sites": 3,
        "stop_after_ticks": 7,
        "port": 9100,
        "format": "text",
    }
    config = load(written(tmp_path, template("site-a", **values)))
    assert config.peer.name == "site-a"
    assert config.peer.join == ("b.example.org:7400", "[2001:db8::1]:7401")
    assert config.data.train == values["train"]
    assert config.data.test == tmp_path / "more" / "test.svm"
    assert (config.data.label, config.data.classes, config.data.features) == ("outcome", ("yes", "no"), 30)
    assert (config.data.zero_based, config.learn.lam, config.learn.sites) == (True, 1e-05, 3)
    assert (config.pace.stop_after_ticks, config.pace.stop_after_seconds) == (7, None)
    assert (config.metrics.port, config.log.format) == (9100, "text")
    assert config.lockstep is None


def test_the_template_is_the_defaults_and_says_something_of_every_key(tmp_path):
    text = template("a")
    short = '[peer]\nname="a"\naddress="a:7400"\n[tls]\ncert="a.pem"\nkey="a.key"\nca="ca.pem"\nrevoked="revoked.pem"\n'
    short += '[data]\ntrain="train.svm"\n[learn]\nlam=0.0001\n'
    assert load(written(tmp_path, text)) == load(written(tmp_path, short))
    for section, model in SECTIONS.items():
        for key, about in model.model_fields.items():
            assert about.description
            assert section == "lockstep" or f"\n{key} = " in text or f"\n# {key} = " in text
            assert about.default is not None or about.examples, f"{section}.{key} has nothing to show"


def test_every_commented_line_of_the_template_is_good_without_its_mark(tmp_path):
    text = "\n".join(line.removeprefix("# ") for line in template("a").splitlines())
    config = load(written(tmp_path, text))
    assert config.data.classes == (-1, 1)
    assert config.data.test == tmp_path / "test.svm"
    assert config.pace.stop_after_seconds == 3600.0


def test_keys_of_the_template_are_those_of_one_section_each():
    keys = [key for model in SECTIONS.values() for key in model.model_fields]
    assert len(keys) == len(set(keys))


def test_a_lockstep_network(tmp_path):
    values = {"node": 1, "topology": "ring", "nodes": 2, "ticks": 50, "addresses": ["a:1", "b:2"]}
    config = load(written(tmp_path, template("a", **values)))
    assert config.lockstep.addresses == ("a:1", "b:2")
    with pytest.raises(ConfigError, match="numbered from 0"):
        template("a", **{**values, "node": 2})
    with pytest.raises(ConfigError, match="2 addresses for 3 nodes"):
        template("a", **{**values, "nodes": 3})
    with pytest.raises(ConfigError, match=r"\[lockstep\] ticks is missing"):
        template("a", **{**values, "ticks": None})


def test_the_template_refuses_what_the_file_would():
    with pytest.raises(ConfigError, match="Did you mean 'lam'"):
        template("a", lamb=1)
    with pytest.raises(ConfigError, match=r"\[learn\] lam"):
        template("a", lam=0)
    with pytest.raises(ConfigError, match="hospital-a"):
        template("Not A Name")


def test_relative_paths_start_at_the_file(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    path = written(tmp_path / "site", template("a", train="rows/train.svm", state="../state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = load(path.relative_to(tmp_path))
    assert config.data.train == tmp_path / "site" / "rows" / "train.svm"
    assert config.peer.state == tmp_path / "site" / ".." / "state"
    assert config.peer.model == tmp_path / "site" / "model.safetensors"  # a default, too
    assert changed(tmp_path, train='"~/x.svm"').data.train == tmp_path / "home" / "x.svm"
    assert changed(tmp_path, train=f'"{tmp_path}/x.svm"').data.train == tmp_path / "x.svm"


def test_files_that_are_not_there_are_named(tmp_path):
    config = load(written(tmp_path, template("a", test="test.svm")))
    assert [text.split(":")[0] for text in config.missing()] == [
        "tls.cert",
        "tls.key",
        "tls.ca",
        "tls.revoked",
        "data.train",
        "data.test",
    ]
    for name in ("a.pem", "a.key", "ca.pem", "revoked.pem", "train.svm"):
        (tmp_path / name).touch()
    assert config.missing() == [f"data.test: there is no file {tmp_path / 'test.svm'}"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("name", '"Ward 3"', r"\[peer\] name: 'Ward 3' is no peer's name"),
        ("name", "", r"\[peer\] name is missing"),
        ("listen", '"7400"', r"\[peer\] listen: '7400' is not host:port"),
        ("address", '"a:99999"', "is not host:port"),
        ("address", '"0.0.0.0:7400"', "the one others reach it by"),
        ("join", '["b"]', r"\[peer\] join: 'b' is not host:port"),
        ("join", '"b:7400"', r"\[peer\] join: must be a valid tuple, got 'b:7400'"),
        ("lam", "0", r"\[learn\] lam: must be greater than 0, got 0"),
        ("lam", "-1e-3", "must be greater than 0"),
        ("lam", "nan", r"\[learn\] lam: must be"),
        ("lam", "inf", "must be a finite number"),
        ("lam", '"0.1"', r"\[learn\] lam: must be a valid number, got '0.1'"),
        ("algorithm", '"pegasos"', "must be 'pdmm' or 'gadget', got 'pegasos'"),
        ("scaling", '"max-abs"', "scaling = 'max-abs' needs sites"),
        ("sites", "-1", "greater than or equal to 0"),
        ("degree", "3", "multiple of 2"),
        ("intercept", "1", "must be a valid boolean"),
        ("seed", "true", "must be a valid integer"),
        ("run", '""', "at least 1 character"),
        ("run", '"a\\nb"', "only printable"),
        ("classes", "[1]", "at least 2 items"),
        ("classes", "[1, 1]", "each only once"),
        ("features", "0", "greater than or equal to 1"),
        ("suspect", "0.5", "must be longer than heartbeat"),
        ("tick", "0", "greater than 0"),
        ("stop_after_ticks", "0", "greater than or equal to 1"),
        ("connections", "0", "greater than or equal to 1"),
        ("port", "7400", "choose another for one"),
        ("port", "70000", "less than or equal to 65535"),
        ("level", '"loud"', "must be 'debug', 'info', 'warning' or 'error'"),
        ("train", "3", r"\[data\] train"),
    ],
)
def test_each_fault_names_file_key_and_what_is_allowed(tmp_path, key, value, told):
    with pytest.raises(ConfigError, match=told) as failed:
        changed(tmp_path, **{key: value})
    assert str(tmp_path / "peer.toml") in str(failed.value)


def test_unknown_keys_and_sections_name_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match=r"\[learn\] unknown key 'lambda'\. Did you mean 'lam'\?"):
        load(written(tmp_path, template("a").replace("lam =", "lambda =")))
    with pytest.raises(ConfigError, match=r"unknown section 'limit'\. Did you mean 'limits'\?"):
        load(written(tmp_path, template("a").replace("[limits]", "[limit]")))
    with pytest.raises(ConfigError, match=r"\[peer\] must be a section"):
        load(written(tmp_path, "peer = 3"))


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as failed:
        changed(tmp_path, lam="-1", degree="1", name='"X"')
    assert all(text in str(failed.value) for text in ("[learn] lam", "[learn] degree", "[peer] name"))


def test_syntax_errors_name_the_line(tmp_path):
    with pytest.raises(ConfigError, match=r"peer\.toml: .*line 2"):
        load(written(tmp_path, '[peer]\nname = "a\n'))
    with pytest.raises(ConfigError, match=r"line 3, the last"):
        load(written(tmp_path, '[peer]\nname = "a"\nlisten = '))
    with pytest.raises(ConfigError, match="line 3"):
        load(written(tmp_path, '[peer]\nname = "a"\nname = "b"\n'))


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "peer.toml").write_bytes(b"\xff\xfe[peer]")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "peer.toml")
    (tmp_path / "peer.toml").write_bytes(b"\xef\xbb\xbf" + template("a").encode())  # as some editors write it
    assert load(tmp_path / "peer.toml").peer.name == "a"


def test_nothing_is_changed_later(tmp_path):
    config = load(written(tmp_path, template("a")))
    with pytest.raises(ValueError, match="frozen"):
        config.learn.lam = 3.0
