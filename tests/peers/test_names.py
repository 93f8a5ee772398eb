"""What peers and hosts may be called."""

import pytest

from gadget_svm.peers.names import check_endpoint, check_host, check_name


@pytest.mark.parametrize("name", ["a", "7", "a-b.c", "a" * 63])
def test_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize("host", ["", "a:7400", "a b", "*.example.org", "http://a", "a..b", "fe80::1%eth0", "ä.de"])
def test_hosts_that_are_none(host):
    with pytest.raises(ValueError, match="is no host"):
        check_host(host)


def test_hosts():
    assert [check_host(host) for host in ("A.b.", "[::1]", "2001:DB8:0::1", "10.0.0.7", "my_box")] == [
        "a.b",
        "::1",
        "2001:db8::1",
        "10.0.0.7",
        "my_box",
    ]


@pytest.mark.parametrize("text", ["", "a", "a:", ":7400", "a:0", "a:65536", "a:x", "::1:7400", "a:7400:1", "a:٣"])
def test_endpoints_that_are_none(text):
    with pytest.raises(ValueError, match="host:port"):
        check_endpoint(text)


def test_endpoints():
    assert [check_endpoint(text) for text in ("a:7400", "[::1]:1", "10.0.0.7:65535")] == [
        "a:7400",
        "[::1]:1",
        "10.0.0.7:65535",
    ]
