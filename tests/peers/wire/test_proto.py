"""peer_pb2.py is what protoc makes of peer.proto."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="needs gadget-svm[peer]")

from google.protobuf import descriptor_pb2

from gadget_svm.peers.membership.member import State
from gadget_svm.peers.wire import codec, messages, peer_pb2

SRC = Path(__file__).parents[3] / "src"
PROTO = "gadget_svm/peers/wire/peer.proto"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Run the protoc that is installed; it may be newer than the one that wrote the files in the repository."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools")
    out = tmp_path_factory.mktemp("generated")
    options = [f"-I{SRC}", f"--python_out={out}", f"--pyi_out={out}", f"--descriptor_set_out={out / 'set'}"]
    assert protoc.main(["protoc", *options, PROTO]) == 0
    return out


def test_the_generated_module_has_the_messages_of_the_proto_file(generated):
    [file] = descriptor_pb2.FileDescriptorSet.FromString((generated / "set").read_bytes()).file
    for message in file.message_type:
        for each in message.field:
            each.ClearField("json_name")  # protoc leaves it out of Python modules
    assert file == descriptor_pb2.FileDescriptorProto.FromString(peer_pb2.DESCRIPTOR.serialized_pb)


def test_the_generated_module_holds_nothing_else(generated):
    """Line by line, apart from what depends on protoc's version: all code is in the new file, too."""
    old, new = (
        {
            line.strip()
            for line in (folder / PROTO).with_name("peer_pb2.py").read_text().splitlines()
            if not line.startswith("#")
        }
        for folder in (SRC, generated)
    )
    assert old - new <= {"if _descriptor._USE_C_DESCRIPTORS == False:", "DESCRIPTOR._options = None"}


def test_the_types_of_the_module_are_those_of_its_messages(generated):
    def names(folder):
        lines = (folder / PROTO).with_name("peer_pb2.pyi").read_text().splitlines()
        return [line.split("(")[0] for line in lines if line.startswith(("class ", "    def __init__"))]

    assert names(SRC) == names(generated)


def test_the_module_runs_with_every_protobuf_that_is_allowed():
    """Later protocs check at import that the runtime is as new as they are: that would raise our lower bound."""
    assert importlib.util.find_spec("google.protobuf")
    text = (SRC / PROTO).with_name("peer_pb2.py").read_text()
    assert "Protobuf Python Version: 4.25" in text
    assert "runtime_version" not in text


def test_enumerations_have_the_numbers_of_the_values():
    for kind, prefix, known in (
        (peer_pb2.State, "STATE_", State),
        (peer_pb2.EdgeState, "EDGE_", messages.EdgeState),
        (peer_pb2.RefusalReason, "REFUSAL_", messages.RefusalReason),
    ):
        assert {name.removeprefix(prefix): number for name, number in kind.items()} == {e.name: e.value for e in known}


def test_the_service_has_the_name_that_is_dialled():
    service = peer_pb2.DESCRIPTOR.services_by_name["Peer"]
    assert service.full_name == codec.SERVICE == f"gadget.v{messages.VERSION}.Peer"
    assert [method.name for method in service.methods] == ["Link", "Status", "Stop"]
