"""From outcomes to policy states: the learner, its replicas, and relearning by replay."""
