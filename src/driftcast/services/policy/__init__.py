"""Management policies: what they say, which contradict each other, and the applications that bring them to nodes."""

from driftcast.services.policy.decision import DecisionPoint
from driftcast.services.policy.enforcement import EnforcementPoint
from driftcast.services.policy.repository import Repository
from driftcast.services.policy.tool import ManagementTool

APPLICATIONS = (ManagementTool, Repository, DecisionPoint, EnforcementPoint)
