"""Retrieval of stored events: repositories that keep, requests that find one, answers that walk back."""

from driftcast.services.retrieval.asks import Ask
from driftcast.services.retrieval.messages import AllAnswered, Answered, Asked
from driftcast.services.retrieval.parts import Branch, parts_of
from driftcast.services.retrieval.service import Retrieval, Ways
from driftcast.services.retrieval.settings import RetrievalSettings
from driftcast.services.retrieval.stored import StoredEvents

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
