"""The built-in applications: their names and classes."""

APPLICATIONS = {
    "policy_decision": "carrycast.services.policy:DecisionPoint",
    "policy_enforcement": "carrycast.services.policy:EnforcementPoint",
    "policy_repository": "carrycast.services.policy:Repository",
    "policy_tool": "carrycast.services.policy:ManagementTool",
}
