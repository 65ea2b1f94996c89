"""The adapters: what counts as an acknowledgement."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        name="unanswered-counts-as-ack",
        breaks="A message that the broker has not answered by the deadline counts as delivered.",
        promise="Delivery is at least once: only an acknowledgement is one.",
        file="outbox_core/adapter/pipeline.py",
        old="return [rest if outcome is PENDING else outcome for outcome in outcomes]",
        new="return [rest and None if outcome is PENDING else outcome for outcome in outcomes]",
        tests=(
            "tests/unit/test_broker.py::test_pending_messages_time_out_at_the_deadline_and_the_client_is_replaced",
        ),
    ),
    Mutation(
        name="any-answer-counts-as-ack",
        breaks="Whatever is answered to a publish counts as the acknowledgement of a JetStream stream.",
        promise="Delivery is at least once: only an acknowledgement is one.",
        file="outbox_adapters/nats/outbox_nats/classification.py",
        old='return Acknowledged(content.get("duplicate") is True) if stored else not_an_ack(subject)',
        new='return Acknowledged(content.get("duplicate") is True)',
        tests=(
            (
                "tests/integration/adapters/test_nats_publishing.py"
                "::test_an_answer_that_is_not_an_acknowledgement_is_not_a_delivery"
            ),
        ),
    ),
    Mutation(
        name="replay-with-the-same-id",
        breaks="A replayed message has the `Nats-Msg-Id` of the first time, and the stream drops it.",
        promise="A replayed message is delivered once more.",
        file="outbox_adapters/nats/outbox_nats/rendering.py",
        old='headers[MESSAGE_ID] = f"{event_id}:r{meta.replays}" if meta.replays else event_id',
        new="headers[MESSAGE_ID] = event_id",
        tests=(
            (
                "tests/integration/adapters/test_nats_publishing.py"
                "::test_the_message_id_is_the_event_id_until_a_replay"
            ),
        ),
    ),
    Mutation(
        name="unroutable-counts-as-ack",
        breaks="RabbitMQ is not asked to return what no queue takes.",
        promise="Every committed message is published, or becomes a dead letter that says why.",
        file="outbox_adapters/amqp/outbox_amqp/client.py",
        old="mandatory=True,",
        new="mandatory=False,",
        tests=(
            "tests/integration/adapters/test_amqp_publishing.py::test_a_returned_message_is_not_delivered",
        ),
    ),
)
