"""peer.toml: what it may hold, and what is said about what it may not."""

import pytest

pytest.importorskip("pydantic")

from gadget_svm.cli.peer import KEYS
from gadget_svm.peers.process.config import ConfigError, PeerConfig, load, template
from gadget_svm.study.toml_file import sections_of

GIVEN = {"peer": {"address": "a.example.org:7400"}, "data": {"train": "train.svm"}}


def written(folder, text):
    path = folder / "peer.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed(folder, **values):
    """The template with some lines replaced, or left out, by "section.key" or key."""
    lines = []
    for line in template("a", GIVEN).splitlines():
        key = line.removeprefix("# ").split(" =")[0]
        lines.append(line if key not in values else f"{key} = {values[key]}" if values[key] else "")
    return load(written(folder, "\n".join(lines)))


def test_the_template_loads_with_the_values_it_was_given(tmp_path):
    values = {
        "peer": {"address": "a.example.org:7400", "join": ["b.example.org:7400", "[2001:db8::1]:7401"],
                 "float32": True},
        "data": {"train": tmp_path / 'odd "name"\\ñ.svm', "test": "more/test.svm", "label": 3, "zero_based": True},
        "pace": {"stop_after_ticks": 7, "tick": 0.2}, "metrics": {"port": 9100}, "log": {"format": "text"},
    }  # fmt: skip
    config = load(written(tmp_path, template("site-a", values)))
    assert (config.peer.name, config.peer.float32) == ("site-a", True)
    assert config.peer.join == ("b.example.org:7400", "[2001:db8::1]:7401")
    assert config.data.train == values["data"]["train"]
    assert config.data.test == tmp_path / "more" / "test.svm"
    assert (config.data.label, config.data.zero_based) == (3, True)
    assert (config.pace.stop_after_ticks, config.pace.stop_after_seconds, config.pace.tick) == (7, None, 0.2)
    assert (config.metrics.port, config.log.format) == (9100, "text")


def test_the_template_holds_the_defaults_and_a_comment_for_every_key(tmp_path):
    text = template("a", GIVEN)
    short = '[peer]\nname="a"\naddress="a.example.org:7400"\n[data]\ntrain="train.svm"\n'
    short += '[tls]\ncert="a.pem"\nkey="a.key"\nca="ca.pem"\nrevoked="revoked.pem"\n'
    assert load(written(tmp_path, text)) == load(written(tmp_path, short))
    for name, section in sections_of(PeerConfig).items():
        for key, about in section.model_fields.items():
            assert about.description
            assert f"\n{key} = " in text or f"\n# {key} = " in text, f"[{name}] {key}"
            assert about.default is not None or about.examples, f"[{name}] {key} has nothing to show"


def test_every_commented_line_of_the_template_is_good_without_its_mark(tmp_path):
    text = "\n".join(line.removeprefix("# ") for line in template("a", GIVEN).splitlines())
    config = load(written(tmp_path, text))
    assert config.data.test == tmp_path / "test.svm"
    assert config.pace.stop_after_seconds == 3600.0


def test_there_is_an_option_for_every_key():
    keys = {f"{name}.{key}" for name, section in sections_of(PeerConfig).items() for key in section.model_fields}
    assert keys == {*KEYS, "peer.name"}


def test_the_template_refuses_what_the_file_would():
    with pytest.raises(ConfigError, match="Did you mean 'tick'"):
        template("a", GIVEN | {"pace": {"tik": 1}})
    with pytest.raises(ConfigError, match=r"\[pace\] tick"):
        template("a", GIVEN | {"pace": {"tick": 0}})
    with pytest.raises(ConfigError, match="hospital-a"):
        template("Not A Name", GIVEN)


def test_relative_paths_start_at_the_file(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    values = {"peer": {"address": "a:1", "state": "../state"}, "data": {"train": "rows/train.svm"}}
    path = written(tmp_path / "site", template("a", values))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = load(path.relative_to(tmp_path))
    assert config.data.train == tmp_path / "site" / "rows" / "train.svm"
    assert config.peer.state == tmp_path / "site" / ".." / "state"
    assert config.peer.model == tmp_path / "site" / "model.safetensors"  # a default, too
    assert changed(tmp_path, train='"~/x.svm"').data.train == tmp_path / "home" / "x.svm"
    assert changed(tmp_path, train=f'"{tmp_path}/x.svm"').data.train == tmp_path / "x.svm"


def test_files_that_do_not_exist_are_named(tmp_path):
    config = load(written(tmp_path, template("a", GIVEN | {"data": {"train": "train.svm", "test": "test.svm"}})))
    named = [text.split(":")[0] for text in config.missing()]
    assert named == ["tls.cert", "tls.key", "tls.ca", "tls.revoked", "peer.study", "data.train", "data.test"]
    for name in ("a.pem", "a.key", "ca.pem", "revoked.pem", "train.svm", "study.toml"):
        (tmp_path / name).touch()
    assert config.missing() == [f"data.test: there is no file {tmp_path / 'test.svm'}"]


def test_settings_of_the_node(tmp_path):
    config = changed(
        tmp_path, name='"a"', address='"a:1"', join='["a:1", "b:2"]', snapshot="3.0", export="4.0", members="9",
        linger="5.0", float32="true",
    )  # fmt: skip
    settings = config.node_settings("certified")
    assert (settings.name, settings.address, settings.reachable, settings.until) == ("a", "a:1", None, "certified")
    assert settings.join == ("b:2",)  # not itself
    assert (settings.snapshot_interval, settings.export_interval, settings.max_members) == (3.0, 4.0, 9)
    assert (settings.linger, settings.float32, config.node_settings().until) == (5.0, True, "stopped")


def test_a_site_that_only_dials_out_needs_no_address_but_somebody_to_dial(tmp_path):
    config = changed(tmp_path, address="", reachable="false", join='["b:2"]')
    assert (config.node_settings().address, config.node_settings().reachable) == ("", False)
    with pytest.raises(ConfigError, match=r"needs \[peer\] join"):
        changed(tmp_path, address="", reachable="false")
    with pytest.raises(ConfigError, match=r"set \[peer\] address, or \[peer\] reachable = false"):
        changed(tmp_path, address="", join='["b:2"]')


@pytest.mark.parametrize(
    ("listen", "local"),
    [("0.0.0.0:7400", "127.0.0.1:7400"), ("[::]:7400", "[::1]:7400"), ("10.0.0.7:1", "10.0.0.7:1")],
)
def test_this_machine_reaches_the_peer_where_it_listens(tmp_path, listen, local):
    assert changed(tmp_path, listen=f'"{listen}"').local_address == local


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("name", '"Ward 3"', r"\[peer\] name: 'Ward 3' is no peer's name"),
        ("name", "", r"\[peer\] name is missing"),
        ("listen", '"7400"', r"\[peer\] listen: '7400' is not host:port"),
        ("address", '"a:99999"', "is not host:port"),
        ("address", '"0.0.0.0:7400"', "the one by which others reach it"),
        ("reachable", '"maybe"', r"\[peer\] reachable"),
        ("join", '["b"]', r"\[peer\] join: 'b' is not host:port"),
        ("join", '"b:7400"', r"\[peer\] join: must be a valid tuple, got 'b:7400'"),
        ("seed", "true", "must be a valid integer"),
        ("suspect", "0.5", r"must be longer than \[pace\] heartbeat"),
        ("tick", "0", "greater than 0"),
        ("tick", "nan", r"\[pace\] tick: must be"),
        ("send_rate", "inf", "must be a finite number"),
        ("stop_after_ticks", "0", "greater than or equal to 1"),
        ("connections", "0", "greater than or equal to 1"),
        ("port", "7400", "change one of them"),
        ("port", "70000", "less than or equal to 65535"),
        ("level", '"loud"', "must be 'debug', 'info', 'warning' or 'error'"),
        ("train", "3", r"\[data\] train"),
    ],
)
def test_each_fault_names_file_key_and_what_is_allowed(tmp_path, key, value, told):
    with pytest.raises(ConfigError, match=told) as failed:
        changed(tmp_path, **{key: value})
    assert str(tmp_path / "peer.toml") in str(failed.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[learn]\nlam = 0.1\n", r"older format \(\[learn\]\): what all sites agree on is now in study.toml"),
        ("[lockstep]\nnode = 0\n", r"older format \(\[lockstep\]\)"),
        ("[data]\nclasses = [-1, 1]\n", r"older format \(\[data\] classes\)"),
        ("[pace]\ncheckpoint = 3.0\n", r"the key is now \[pace\] snapshot"),
    ],
)
def test_an_older_format_is_refused_with_the_commands_that_fix_it(tmp_path, text, told):
    path = written(tmp_path, '[peer]\nname = "a"\n' + text)
    with pytest.raises(ConfigError, match=told) as failed:
        load(path)
    assert "'gadget study new'" in str(failed.value)
    assert "'gadget peer new NAME --overwrite'" in str(failed.value)


def test_unknown_keys_and_sections_name_the_nearest(tmp_path):
    text = template("a", GIVEN)
    with pytest.raises(ConfigError, match=r"\[pace\] unknown key 'thick'\. Did you mean 'tick'\?"):
        load(written(tmp_path, text.replace("tick =", "thick =", 1)))
    with pytest.raises(ConfigError, match=r"unknown section 'limit'\. Did you mean 'limits'\?"):
        load(written(tmp_path, text.replace("[limits]", "[limit]")))
    with pytest.raises(ConfigError, match=r"\[peer\] must be a section"):
        load(written(tmp_path, "peer = 3"))


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as failed:
        changed(tmp_path, tick="-1", burst="0", name='"X"')
    assert all(text in str(failed.value) for text in ("[pace] tick", "[limits] burst", "[peer] name"))


def test_syntax_errors_name_the_line(tmp_path):
    with pytest.raises(ConfigError, match=r"peer\.toml: .*line 2"):
        load(written(tmp_path, '[peer]\nname = "a\n'))
    with pytest.raises(ConfigError, match=r"line 3, the last"):
        load(written(tmp_path, '[peer]\nname = "a"\nlisten = '))
    with pytest.raises(ConfigError, match="line 3"):
        load(written(tmp_path, '[peer]\nname = "a"\nname = "b"\n'))


def test_files_that_are_not_text(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "peer.toml").write_bytes(b"\xff\xfe[peer]")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "peer.toml")
    (tmp_path / "peer.toml").write_bytes(b"\xef\xbb\xbf" + template("a", GIVEN).encode())  # as some editors write it
    assert load(tmp_path / "peer.toml").peer.name == "a"


def test_values_are_frozen(tmp_path):
    config = load(written(tmp_path, template("a", GIVEN)))
    with pytest.raises(ValueError, match="frozen"):
        config.pace.tick = 3.0
