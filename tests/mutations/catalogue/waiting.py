"""No message waits for an unreadable row, a slow key, a backlog or a silent host that it has nothing to do with."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_UNIT: Final = "tests/unit/relay/claiming/test_obstacles.py"
_RELAY: Final = "tests/integration/relay"
_UNREADABLE: Final = "outbox_core/relay/claiming/unreadable.py"
_SCAN: Final = "outbox_core/relay/claiming/scan.py"
_LIMITS: Final = "outbox_core/relay/claiming/limits.py"
_NO_OTHER_WAITS: Final = "However much lies in the way of a claim, others are not kept waiting."

MUTATIONS: Final = (
    Mutation(
        name="unreadable-rows-not-looked-for",
        breaks="A claim of a single row that failed over its content is sent again and again.",
        promise="A row that cannot be read is a dead letter, and the others go on.",
        file=_UNREADABLE,
        old="self._failed = (claim, keys)",
        new="pass",
        tests=(f"{_UNIT}::test_a_row_that_cannot_be_read_is_dead_and_the_others_go_on[None]",),
    ),
    Mutation(
        name="unreadable-rows-dispatched",
        breaks="A row that was leased without its content is dispatched without it.",
        promise="A row that cannot be read is a dead letter, and the others go on.",
        file=_UNREADABLE,
        old="except ContentUnreadable as error:\n                found[row] = error",
        new="except ContentUnreadable:\n                pass",
        tests=(
            f"{_UNIT}::test_a_row_that_cannot_be_read_is_dead_and_the_others_go_on[None]",
            f"{_RELAY}/test_unreadable.py::test_a_row_that_cannot_be_written_out_is_dead_and_the_others_arrive",
        ),
    ),
    Mutation(
        name="slow-keys-claimed-on",
        breaks="Claims go on bringing messages of a key whose messages wait for each other.",
        promise="A slow key with many messages keeps no other waiting.",
        file="outbox_core/relay/ordering/keys.py",
        old="self._hold(key, now, firm=True)",
        new="pass",
        tests=(f"{_UNIT}::test_a_slow_key_with_many_messages_keeps_no_other_waiting",),
    ),
    Mutation(
        name="sweeps-come-no-further",
        breaks="Each slice of a rescan begins at the beginning.",
        promise="What appears behind the claims that read on is found.",
        file=_SCAN,
        old="        self.position = (last[0], last[1] + 1)",
        new="        self.position = BEGINNING",
        tests=(f"{_UNIT}::test_what_appears_behind_is_found_while_a_destination_is_tried_again_and_again",),
    ),
    Mutation(
        name="sweeps-taken-back",
        breaks="A rescan that is under way goes back to the beginning whenever another is wanted.",
        promise="What appears behind the claims that read on is found.",
        file=_SCAN,
        old="            self._wanted_again = True\n",
        new="            self.position = BEGINNING\n            self._pace.reset()\n",
        tests=(
            (
                "tests/unit/relay/claiming/test_rescans.py"
                "::test_a_rescan_under_way_comes_to_its_end_however_often_it_is_wanted_anew"
            ),
        ),
    ),
    Mutation(
        name="silent-hosts-asked-first",
        breaks="Of several hosts in a URL one that did not answer is asked first again.",
        promise="After a failover the relay finds the new primary by itself, also when the old one is silent.",
        file="outbox_core/stores/postgres/hosts.py",
        old="self._hosts.append(self._hosts.pop(0))",
        new="return",
        tests=(
            "tests/unit/test_hosts.py::test_who_was_silent_is_asked_last",
            f"{_RELAY}/test_failover.py::test_a_relay_follows_to_the_promoted_stand_by[silent]",
        ),
    ),
    Mutation(
        name="broken-off-claims-ask-for-as-much",
        breaks="After a claim that was broken off the next one asks for as many rows.",
        promise=_NO_OTHER_WAITS,
        file=_LIMITS,
        old="self.rows.shrink()",
        new="pass",
        tests=(f"{_UNIT}::test_a_row_that_cannot_be_read_in_time_is_rescheduled_and_the_others_go_on[0]",),
    ),
    Mutation(
        name="broken-off-claims-look-as-far",
        breaks="After a claim that was broken off the next one reads as far.",
        promise=_NO_OTHER_WAITS,
        file=_LIMITS,
        old="""            if self._bounded:
                self._span.shrink()
            else:
                self._span.reset()
                self._bounded = True
""",
        new="",
        tests=(f"{_UNIT}::test_an_unavailable_destination_with_very_many_messages_keeps_no_other_waiting",),
    ),
    Mutation(
        name="unreadable-rows-blame-others",
        breaks="Of rows that were leased without their content, the first one's error counts for all.",
        promise="A row that cannot be read is a dead letter, and the others go on.",
        file="outbox_core/relay/claiming/unreadable.py",
        old="                found[row] = error\n            except StorageTimeout",
        new="                return dict.fromkeys(batch.deliveries(), error)\n            except StorageTimeout",
        tests=(
            (
                "tests/unit/relay/claiming/test_unreadable.py"
                "::test_no_row_is_blamed_for_another_that_was_leased_with_it"
            ),
        ),
    ),
)
