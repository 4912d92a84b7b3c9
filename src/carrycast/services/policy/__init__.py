"""Management policies: what they say, which contradict each other, and the applications that bring them to nodes."""

from carrycast.services.policy.decision_point import DecisionPoint
from carrycast.services.policy.enforcement_point import EnforcementPoint
from carrycast.services.policy.management_tool import ManagementTool
from carrycast.services.policy.repository import Repository

__all__ = ["DecisionPoint", "EnforcementPoint", "ManagementTool", "Repository"]
