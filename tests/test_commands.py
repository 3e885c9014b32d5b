"""Command lines without secrets."""

from __future__ import annotations

import getpass

import pytest

from torchrl_trackio.commands import command_without_secrets


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["lr=0.1", "--seed", "3", "hidden=[64, 64]"], "lr=0.1 --seed 3 'hidden=[64, 64]'"),
        (["wandb_key=SECRET"], "'wandb_key=***'"),
        (["+logger.hf_token=SECRET"], "'+logger.hf_token=***'"),
        (["--PASSWORD=SECRET", "--pass", "SECRET", "x"], "'--PASSWORD=***' --pass '***' x"),
        (["--hftoken", "SECRET", "--openaiApiKey=SECRET"], "--hftoken '***' '--openaiApiKey=***'"),
        (["--passphrase", "SECRET", "--jwt", "SECRET"], "--passphrase '***' --jwt '***'"),
        (["server_url=http://h:1/?write_token=SECRET&x=1"], "'server_url=http://h:1/?***'"),
        (["url=https://me:SECRET@host/x"], "'url=https://***@host/x'"),
        (["https://h/x?X-Amz-Signature=SECRET"], "'https://h/x?***'"),
        (["https://hooks.slack.com/services/SECRET"], "'https://hooks.slack.com/***'"),
        (["--webhook_url", "https://h/SECRET"], "--webhook_url '***'"),
        (["kwargs={api_key: SECRET, lr: 1}"], "'kwargs={api_key: ***, lr: 1}'"),
        (['kwargs={"api_key": "SECRET AND SECRET", "lr": 1}'], """'kwargs={"api_key": ***, "lr": 1}'"""),
        (["token: SECRET"], "'token: ***'"),
        (["--headers", "Accept: x, Authorization: Bearer SECRET"], "--headers 'Accept: x, Authorization: ***'"),
        (["--header", "Authorization: Token SECRET"], "--header 'Authorization: ***'"),
        (["-H", "X-Auth: Token SECRET", "author: Jane Doe"], "-H 'X-Auth: ***' 'author: Jane Doe'"),
        (["-H", "Cookie: a=SECRET; b=SECRET"], "-H 'Cookie: ***'"),
        (['{"Authorization": "Token SECRET", "lr": 1}'], """'{"Authorization": ***, "lr": 1}'"""),
        (["env.reward_key=reward", "in_keys=[obs, pixels]"], "env.reward_key=reward 'in_keys=[obs, pixels]'"),
        (["--out-keys", "loc,scale", "+loss.action_key=a"], "--out-keys loc,scale +loss.action_key=a"),
        (["{value_target_key: target, pixels_key: p}"], "'{value_target_key: target, pixels_key: p}'"),
        (["--ssh-key", "SECRET", "api_keys=[SECRET]"], "--ssh-key '***' 'api_keys=***'"),
        (["account_key=SECRET", "sign_in_key=SECRET"], "'account_key=***' 'sign_in_key=***'"),
        (["secret_key=SECRET", "access_key=SECRET", "key=SECRET"], "'secret_key=***' 'access_key=***' 'key=***'"),
        (["secret.reward_key=SECRET", "reward_api_key=SECRET"], "'secret.reward_key=***' 'reward_api_key=***'"),
        (["model=hf_SECRETSECRET", "SECRET0SECRET0SECRET0SECRET0SECRET"], "'model=***' '***'"),
        (["max_tokens=512", "tokenizer=gpt2", "author=me"], "max_tokens=512 tokenizer=gpt2 author=me"),
        ([f"data=/scratch/{getpass.getuser()}/x"], "'data=/scratch/***/x'"),
        (["-c", "conf.yaml"], "-c conf.yaml"),
    ],
    ids=lambda value: value[0][:30] if isinstance(value, list) else "",
)
def test_arguments(arguments: list[str], shown: str) -> None:
    """Of an argument, what looks like a secret is left out, and nothing else."""
    told = command_without_secrets(["/usr/bin/python3", "train.py", *arguments])
    assert told == f"python3 train.py {shown}"
    assert "SECRET" not in told


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-c", "SECRET", "a"], "-c ... a"),
        (["-cSECRET", "a"], "-c ... a"),
        (["-uic", "SECRET", "-c", "conf"], "-c ... -c conf"),
        (["-u", "-m", "package", "-c", "conf"], "-u -m package -c conf"),
        (["-um", "package", "-c", "conf"], "-um package -c conf"),
        (["-W", "error", "-c", "SECRET", "a"], "-W error -c ... a"),
        (["-X", "dev", "-uWerror", "-c", "SECRET"], "-X dev -uWerror -c ..."),
        (["--check-hash-based-pycs", "always", "-c", "SECRET"], "--check-hash-based-pycs always -c ..."),
        (["-W", "error", "train.py", "-W", "x", "-c", "conf"], "-W error train.py -W x -c conf"),
        (["-X", "dev"], "-X dev"),
        (["-", "-c", "conf"], "- -c conf"),
    ],
)
def test_code(arguments: list[str], shown: str) -> None:
    """Code that the interpreter was given is not recorded; a script's own option `-c` is."""
    assert command_without_secrets(["/usr/bin/python3", *arguments]) == f"python3 {shown}"
