"""The runtime of a node: runs its stack on an event loop, its applications, and users' functions in processes."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.node.runtime.actions import AllowedActions as AllowedActions, AllowedCommand as AllowedCommand
    from carrycast.node.runtime.application_host import (
        ApplicationConfig as ApplicationConfig,
        Cancel as Cancel,
        LiveApplicationHost as LiveApplicationHost,
        OnReply as OnReply,
    )
    from carrycast.node.runtime.application_layer import (
        ApplicationLayer as ApplicationLayer,
        VerifiedApplicationLayer as VerifiedApplicationLayer,
    )
    from carrycast.node.runtime.host import (
        STANDING as STANDING,
        HostFacts as HostFacts,
        LiveHost as LiveHost,
        Whereabouts as Whereabouts,
        find_capabilities as find_capabilities,
    )
    from carrycast.node.runtime.load import LoadMeter as LoadMeter
    from carrycast.node.runtime.processing import (
        ProcessorConfig as ProcessorConfig,
        ProcessorOutcome as ProcessorOutcome,
        ProcessorPool as ProcessorPool,
    )
    from carrycast.node.runtime.publisher import (
        MAX_EVENT_BYTES as MAX_EVENT_BYTES,
        EventPublisher as EventPublisher,
        PublicationRequest as PublicationRequest,
        RequiredCopies as RequiredCopies,
        check_stores_events as check_stores_events,
    )
    from carrycast.node.runtime.runtime import CertifyingRuntime as CertifyingRuntime, Runtime as Runtime

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "actions": "AllowedActions AllowedCommand",
        "application_host": "ApplicationConfig Cancel LiveApplicationHost OnReply",
        "application_layer": "ApplicationLayer VerifiedApplicationLayer",
        "host": "HostFacts LiveHost STANDING Whereabouts find_capabilities",
        "load": "LoadMeter",
        "processing": "ProcessorConfig ProcessorOutcome ProcessorPool",
        "publisher": "EventPublisher MAX_EVENT_BYTES PublicationRequest RequiredCopies check_stores_events",
        "runtime": "CertifyingRuntime Runtime",
    },
)
