"""Profiles of AWS's shared files: keys, roles and programs.

https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html
"""

from __future__ import annotations

import asyncio
import configparser
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import orjson

from gateway.backends.providers.bedrock.signature import Credentials
from gateway.settings.environment import variables

_PROGRAM_S = 30.0
"""Maximum seconds that a program may run."""
_UNSUPPORTED = ("sso_session", "sso_start_url", "sso_account_id", "login_session")

Profile = Mapping[str, str]


def chosen(profile: str | None) -> str:
    """The name of the profile in use. `profile`: the one in gateway.yaml; None: the default of AWS's SDKs."""
    given = variables("AWS_")
    return profile or given.get("AWS_PROFILE") or given.get("AWS_DEFAULT_PROFILE") or "default"


def read_profile(name: str) -> Profile:
    """All settings of a profile; empty if there is no such profile. `credentials` wins over `config`. May block."""
    given = variables("AWS_")
    home = Path(variables("HOME").get("HOME", "/")) / ".aws"
    credentials = Path(given.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"))
    config = Path(given.get("AWS_CONFIG_FILE", home / "config"))
    in_config = _sections(config).get(name if name == "default" else f"profile {name}", {})
    return {**in_config, **_sections(credentials).get(name, {})}


def _sections(file: Path) -> Mapping[str, Profile]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text(encoding="utf-8"), source=str(file))
    except FileNotFoundError:
        return {}
    except configparser.Error as error:  # the error's text contains the line of the file, which may be a secret
        raise ValueError(f"{file} is not in the format of AWS's files ({type(error).__name__})") from None
    return {section: dict(parser[section]) for section in parser.sections()}


def keys_of(profile: Profile) -> Credentials | None:
    key, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
    return Credentials(key, secret, profile.get("aws_session_token", "")) if key and secret else None


def check_supported(name: str, profile: Profile) -> None:
    """Raise ValueError if `profile` has a setting that the gateway does not support. The error names the setting."""
    if key := next((key for key in _UNSUPPORTED if profile.get(key)), None):
        raise ValueError(
            f"profile {name} has {key}: single sign-on needs a person; use role_arn or credential_process, or keys"
        )


async def of_program(command: str) -> Credentials:
    """The credentials that the program in `credential_process` prints. Raises ValueError if it fails."""
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_PROGRAM_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise ValueError("credential_process did not end in time") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(f"credential_process ended with status {process.returncode}")
    try:
        read = orjson.loads(printed)
        ends = datetime.fromisoformat(read["Expiration"]).timestamp() if read.get("Expiration") else None
        token = str(read.get("SessionToken") or "")
        return Credentials(str(read["AccessKeyId"]), str(read["SecretAccessKey"]), token, ends)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError("credential_process printed no credentials") from None
