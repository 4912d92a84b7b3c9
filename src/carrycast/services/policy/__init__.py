"""Management policies: what they say, which contradict each other, and the applications that bring them to nodes."""

from carrycast.services.policy.decision import DecisionPoint
from carrycast.services.policy.enforcement import EnforcementPoint
from carrycast.services.policy.repository import Repository
from carrycast.services.policy.tool import ManagementTool

__all__ = ["DecisionPoint", "EnforcementPoint", "ManagementTool", "Repository"]
