"""Retrieval of stored events: repositories store them, requests find a repository, responses travel the path back."""

from carrycast.services.retrieval.messages import ResponseEnd, RetrievalRequest, RetrievalResponse
from carrycast.services.retrieval.repository_choice import RepositoryBranch, split_request
from carrycast.services.retrieval.requester import OpenRequest
from carrycast.services.retrieval.service import Retrieval, RetrievalRoutes
from carrycast.services.retrieval.settings import RetrievalSettings
from carrycast.services.retrieval.stored import StoredEvents

__all__ = [
    "ResponseEnd",
    "RetrievalResponse",
    "OpenRequest",
    "RetrievalRequest",
    "RepositoryBranch",
    "Retrieval",
    "RetrievalSettings",
    "StoredEvents",
    "RetrievalRoutes",
    "split_request",
]
