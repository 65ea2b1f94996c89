"""CloudEvents 1.0: which attribute carries what of a message, and the JSON event format, there and back."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Final, Literal

from outbox_core.errors import ConfigError, NotAnOutboxMessage
