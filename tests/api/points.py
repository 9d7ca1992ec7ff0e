"""What is declared where a test of the service only needs a decision point."""

POINT = """
format: 1
skill: search
decision: depth
context: {dim: 8, fields: {intent: {type: category}}}
actions: {kind: choice, names: [shallow, deep]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {rules: [], otherwise: shallow}
budgets: {deadline_ms: 20000}
reward: {terms: {clicked: {weight: 1}}}
"""
