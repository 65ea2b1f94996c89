"""Kafka: one broker that is its own controller."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from tests.services import containers
from tests.services.own_loop import run_async
from tests.services.provision import cached, maven
from tests.services.run import Command
from tests.services.server import Server, StartFailed
from tests.services.sources import Candidate, Source, Unavailable, environment

VERSION = "4.1.0"
_READINESS_TOPIC = "harness-readiness"
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.1</version>
    </dependency>
  </dependencies>
</project>
"""
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""
# The heartbeat and election settings bring it back 3 s after SIGKILL instead of 12 s.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1500
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=1000
"""


class KafkaServer(Server):
    """The address is `host:port`. Topics are not created on their own: see `create_topic`."""

    name = "Kafka"
    start_timeout_s = 40.0
    not_ready = (KafkaError, OSError)
    hint = "run `apt-get install default-jre-headless maven` and let Maven fetch the broker"
    url_variable = "OUTBOX_TEST_KAFKA_URL"

    @classmethod
    def candidates(cls) -> list[Candidate]:
        return [
            environment(cls.url_variable),
            Candidate(Source.MAVEN, _from_maven),
            Candidate(Source.DOCKER, containers.kafka),
        ]

    def own_address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        controller = self._run.free_port()
        own_settings = f"""\
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={self.folder / "data"}
"""
        self._config.write_text(_SETTINGS + own_settings + self.extra_config)
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        completed = subprocess.run(
            [
                *self._java(),
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster}",
                "-c",
                self._config,
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=self.start_timeout_s,
            check=False,
        )
        if completed.returncode != 0:
            raise StartFailed(f"Kafka's StorageTool failed:\n{completed.stdout}{completed.stderr}")

    def commands(self) -> Sequence[Command]:
        server = Command(
            name="kafka",
            port=self.port,
            arguments=[*self._java(), "kafka.Kafka", self._config],
            folder=self.folder,
            log=self.log,
        )
        return [server]

    def round_trip(self, *, timeout_s: float) -> str:
        async def publish() -> None:
            await self._create_topic(_READINESS_TOPIC, 1)
            producer = AIOKafkaProducer(bootstrap_servers=self.address, acks="all")
            await producer.start()
            try:
                await producer.send_and_wait(_READINESS_TOPIC, b"ready")
            finally:
                await producer.stop()

        run_async(publish, timeout_s=timeout_s)
        return VERSION if self.source is Source.MAVEN else "unknown"

    def create_topic(self, name: str, *, partitions: int = 1, timeout_s: float = 10.0) -> None:
        """Create a topic, or accept that it exists."""
        run_async(lambda: self._create_topic(name, partitions), timeout_s=timeout_s)

    async def _create_topic(self, name: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        try:
            await admin.start()
            response = await admin.create_topics(
                [NewTopic(name, num_partitions=partitions, replication_factor=1)]
            )
        finally:
            await admin.close()
        for _, code, *details in response.topic_errors:
            error = for_code(code)
            if code != 0 and error is not TopicAlreadyExistsError:
                raise error(f"topic {name!r}: {details}")

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def _java(self) -> list[str | Path]:
        options = ["-Xms256m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return ["java", *options, logging, "-cp", f"{self.installed_in}/*"]


def _from_maven() -> Path | None:
    if shutil.which("java") is None:
        raise Unavailable("java is not installed")

    def fetch(folder: Path) -> None:
        (folder / "pom.xml").write_text(_POM)
        maven("copy-dependencies", folder, "-DoutputDirectory=.", "-DincludeScope=runtime")

    return cached(f"kafka-{VERSION}", fetch)
