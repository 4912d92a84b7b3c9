"""Retrieval of stored events: requests are forwarded to a repository, and responses return along the same path."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.services.retrieval.messages import (
        MAX_HOPS as MAX_HOPS,
        ResponseEnd as ResponseEnd,
        RetrievalRequest as RetrievalRequest,
        RetrievalResponse as RetrievalResponse,
    )
    from carrycast.services.retrieval.repository_choice import (
        RepositoryBranch as RepositoryBranch,
        split_request as split_request,
    )
    from carrycast.services.retrieval.requester import OpenRequest as OpenRequest
    from carrycast.services.retrieval.service import Retrieval as Retrieval, RetrievalRoutes as RetrievalRoutes
    from carrycast.services.retrieval.settings import RetrievalSettings as RetrievalSettings
    from carrycast.services.retrieval.stored import StoredEvents as StoredEvents

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "messages": "MAX_HOPS ResponseEnd RetrievalRequest RetrievalResponse",
        "repository_choice": "RepositoryBranch split_request",
        "requester": "OpenRequest",
        "service": "Retrieval RetrievalRoutes",
        "settings": "RetrievalSettings",
        "stored": "StoredEvents",
    },
)
