"""Retrieval of stored events: repositories that keep, requests that find one, answers that walk back."""

from carrycast.services.retrieval.asks import Ask
from carrycast.services.retrieval.messages import AllAnswered, Answered, Asked
from carrycast.services.retrieval.parts import Branch, parts_of
from carrycast.services.retrieval.service import Retrieval, Ways
from carrycast.services.retrieval.settings import RetrievalSettings
from carrycast.services.retrieval.stored import StoredEvents

__all__ = [
    "AllAnswered",
    "Answered",
    "Ask",
    "Asked",
    "Branch",
    "Retrieval",
    "RetrievalSettings",
    "StoredEvents",
    "Ways",
    "parts_of",
]
