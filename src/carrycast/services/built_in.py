"""The applications that come with carrycast: their names, and where their classes are."""

APPLICATIONS = {
    "policy_decision": "carrycast.services.policy:DecisionPoint",
    "policy_enforcement": "carrycast.services.policy:EnforcementPoint",
    "policy_repository": "carrycast.services.policy:Repository",
    "policy_tool": "carrycast.services.policy:ManagementTool",
}
