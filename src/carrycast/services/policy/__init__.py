"""Management policies: their language, conflict detection, and the applications that distribute and enforce them."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.services.policy.conflict import (
        explain_inapplicable as explain_inapplicable,
        find_conflicts as find_conflicts,
    )
    from carrycast.services.policy.decision_point import DecisionPoint as DecisionPoint
    from carrycast.services.policy.enforcement_point import EnforcementPoint as EnforcementPoint
    from carrycast.services.policy.management_tool import ManagementTool as ManagementTool
    from carrycast.services.policy.policy_text import format_policy as format_policy, read_policies as read_policies
    from carrycast.services.policy.repository import Repository as Repository

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "conflict": "find_conflicts explain_inapplicable",
        "decision_point": "DecisionPoint",
        "enforcement_point": "EnforcementPoint",
        "management_tool": "ManagementTool",
        "policy_text": "format_policy read_policies",
        "repository": "Repository",
    },
)
