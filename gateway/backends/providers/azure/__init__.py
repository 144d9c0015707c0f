"""Kind `azure`: Azure OpenAI and Azure AI Foundry."""
