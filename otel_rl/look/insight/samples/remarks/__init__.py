"""Remarks on a run, in words, from its samples.

In reading order: `remark` is one statement, and `collect` asks all of the following. `paying_phrases` are words that
earn a reward, `text_rules` says what is wrong with one text and `faulty_texts` with a run, `reward_conflicts` are
parts of the reward that move apart, and `token_mismatch` are tokens to which engine and trainer give other
probabilities. `loss_shares` says which samples made the loss of a step.
"""
