// The page's texts, one a line: English|Spanish|Brazilian Portuguese. Without a third text, the second serves both.

const lines = `
The gateway answered {0}.|La pasarela respondió {0}.|O gateway respondeu {0}.
The gateway does not answer.|La pasarela no responde.|O gateway não responde.
This key is not valid.|Esta clave no es válida.|Esta chave não é válida.
This key may not see that.|Esta clave no puede ver eso.|Esta chave não pode ver isso.
There is no such request for this key.|No hay tal petición de esta clave.|Não há tal requisição desta chave.
(no text)|(sin texto)|(sem texto)
others|otros|outros
Bar chart of the cost of each of {0} {1}; the most expensive is {2} with {3}. The table below lists all.|Gráfico de barras del coste de cada uno de {0} {1}; el más caro es {2} con {3}. La tabla siguiente los muestra todos.|Gráfico de barras do custo de cada um de {0} {1}; o mais caro é {2} com {3}. A tabela abaixo mostra todos.
days|días|dias
hours|horas
Line chart of spend over time, now {0}; the limit is {1} until {2}.|Gráfico de líneas del gasto, ahora {0}; el límite es {1} hasta {2}.|Gráfico de linhas do gasto, agora {0}; o limite é {1} até {2}.
no price|sin precio|sem preço
difficulty {0}|dificultad {0}|dificuldade {0}
, outside the grader's domain|, fuera del dominio del evaluador|, fora do domínio do avaliador
then escalated to a stronger backend|después pasó a un backend más capaz|depois passou a um backend mais forte
Chosen: {0} ({1})|Elegido: {0} ({1})|Escolhido: {0} ({1})
Backends considered for {0}|Backends considerados para {0}
Adequacy|Adecuación|Adequação
Expected cost|Coste previsto|Custo previsto
Excluded because|Excluido porque|Excluído porque
More|Más|Mais
This key sees its own requests only.|Esta clave solo ve sus propias peticiones.|Esta chave vê apenas suas próprias requisições.
Requests|Peticiones|Requisições
No request matches.|Ninguna petición coincide.|Nenhuma requisição corresponde.
Time|Hora
Model|Modelo
Status|Estado
simulated|simulada
Cache|Caché|Cache
Time taken|Duración|Duração
Cost|Coste|Custo
Key|Clave|Chave
from the cache|de la caché|do cache
Spend as a table|El gasto en una tabla|O gasto em uma tabela
Spent|Gastado|Gasto
From the cache|De la caché|Do cache
Saved by the cache|Ahorrado por la caché|Economizado pelo cache
Failed|Fallidas|Falhas
none|ninguno|nenhum
A request counts once for each of its tags.|Una petición cuenta una vez por cada etiqueta.|Uma requisição conta uma vez para cada etiqueta.
Spend by group|Gasto por grupo
Calls|Llamadas|Chamadas
Tokens in|Tokens de entrada
Tokens out|Tokens de salida|Tokens de saída
No spend yet.|Todavía no hay gasto.|Ainda não há gasto.
Only the {0} groups with the highest spend are listed.|Solo se muestran los {0} grupos con mayor gasto.|São mostrados apenas os {0} grupos com maior gasto.
No request was graded in this period.|No se evaluó ninguna petición en este periodo.|Nenhuma requisição foi avaliada neste período.
As a table|En una tabla|Em uma tabela
Answers by difficulty|Respuestas por dificultad|Respostas por dificuldade
Difficulty|Dificultad|Dificuldade
No request was answered in this period.|No se respondió ninguna petición en este periodo.|Nenhuma requisição foi respondida neste período.
Answers by tier|Respuestas por nivel|Respostas por nível
Tier|Nivel|Nível
Answers|Respuestas|Respostas
Share|Parte
Weak answers replaced by a stronger backend's: {0}.|Respuestas débiles sustituidas por las de un backend más capaz: {0}.|Respostas fracas substituídas pelas de um backend mais forte: {0}.
No backend has given a complete answer in this period.|Ningún backend dio una respuesta completa en este periodo.|Nenhum backend deu uma resposta completa neste período.
Time by backend|Tiempo por backend|Tempo por backend
First byte|Primer byte|Primeiro byte
Half within|La mitad en|Metade em
95% within|El 95 % en|95% em
No backend is configured for this team.|No hay ningún backend configurado para este equipo.|Nenhum backend está configurado para esta equipe.
State of the backends|Estado de los backends|Estado dos backends
State|Estado
In progress|En curso|Em andamento
Simulated traffic as a table|El tráfico simulado en una tabla|O tráfego simulado em uma tabela
Hypothetical cost|Coste hipotético|Custo hipotético
At the price of|Al precio de|Pelo preço de
End user|Usuario final|Usuário final
Session|Sesión|Sessão
Tag|Etiqueta
{0} to {1}|{0} a {1}
today|hoy|hoje
the last {0} days|los últimos {0} días|os últimos {0} dias
Computing…|Calculando…
Most of it on {0}: {1}|La mayor parte en {0}: {1}|A maior parte em {0}: {1}
Spend, {0}|Gasto, {0}
By model, key and session|Por modelo, clave y sesión|Por modelo, chave e sessão
At the pace of the last {0} days: about {1} by the end of {2}.|Al ritmo de los últimos {0} días: unos {1} al final de {2}.|No ritmo dos últimos {0} dias: cerca de {1} no fim de {2}.
Will the budget hold?|¿Alcanzará el presupuesto?|O orçamento será suficiente?
Yes|Sí|Sim
No budget|Sin presupuesto|Sem orçamento
Budgets|Presupuestos|Orçamentos
{0}: {1} of {2} used|{0}: usados {1} de {2}
All budgets|Todos los presupuestos|Todos os orçamentos
{0}: {1} used|{0}: {1} usado
Saved, and how|Ahorro y cómo|Economia e como
There were no requests in this period.|No hubo peticiones en este periodo.|Não houve requisições neste período.
unknown|desconocido|desconhecido
No backend of this team has a price to compare with, so savings are unknown.|Ningún backend de este equipo tiene un precio con el que comparar; el ahorro es desconocido.|Nenhum backend desta equipe tem um preço para comparar; a economia é desconhecida.
Savings|Ahorro|Economia
Compared with {0} for everything, which would have cost {1}.|Comparado con {0} para todo, que habría costado {1}.|Comparado com {0} para tudo, que teria custado {1}.
Statement|Cuenta|Demonstrativo
Most expensive requests|Peticiones más caras|Requisições mais caras
No request had a cost in this period.|Ninguna petición tuvo coste en este periodo.|Nenhuma requisição teve custo neste período.
All requests by cost|Todas las peticiones por coste|Todas as requisições por custo
Wrong answers from the cache|Respuestas erróneas de la caché|Respostas erradas do cache
There was no semantic hit in this period.|No hubo aciertos semánticos en este periodo.|Não houve acertos semânticos neste período.
There is no measurement in this period.|No hay ninguna medición en este periodo.|Não há nenhuma medição neste período.
not measured|no medido|não medido
Semantic hits: {0}; none has been checked yet.|Aciertos semánticos: {0}; ninguno se ha comprobado todavía.|Acertos semânticos: {0}; nenhum foi verificado ainda.
{0} of {1} checked hits were wrong.|{0} de {1} aciertos comprobados eran erróneos.|{0} de {1} acertos verificados estavam errados.
Nobody needs to act.|Nadie tiene que actuar.|Ninguém precisa agir.
Demo history: these requests are invented. They were never sent and cost nothing.|Historial de demostración: estas peticiones son inventadas. Nunca se enviaron y no costaron nada.|Histórico de demonstração: estas requisições são inventadas. Nunca foram enviadas e não custaram nada.
Open alerts|Alertas abiertas|Alertas abertos
All teams|Todos los equipos|Todas as equipes
Team|Equipo|Equipe
At this pace|A este ritmo|Neste ritmo
Saved|Ahorrado|Economizado
Alerts|Alertas
teams with a price to compare with: {0}|equipos con un precio con el que comparar: {0}|equipes com um preço para comparar: {0}
{0} backend calls|{0} llamadas a backends|{0} chamadas a backends
{0} of calls|{0} de las llamadas|{0} das chamadas
see the teams below|véanse los equipos|veja as equipes abaixo
The policy of this team sets no budget.|La política de este equipo no fija ningún presupuesto.|A política desta equipe não define orçamento.
Of semantic look-ups: more than the {0} that the policy allows.|De las búsquedas semánticas: más que el {0} que permite la política.|Das buscas semânticas: mais que os {0} que a política permite.
Of semantic look-ups; the policy allows {0}.|De las búsquedas semánticas; la política permite {0}.|Das buscas semânticas; a política permite {0}.
No: used up|No: agotado|Não: esgotado
Probably not|Probablemente no|Provavelmente não
Probably, but nearly used up|Probablemente, pero casi agotado|Provavelmente, mas quase esgotado
Team {0}|Equipo {0}|Equipe {0}
These figures are from {0}.|Estas cifras son de {0}.|Estes valores são de {0}.
Trying again…|Se intenta de nuevo…|Tentando de novo…
From {0} to {1}; refreshed while this page is visible.|Del {0} al {1}; se actualiza mientras la página está visible.|De {0} a {1}; atualizado enquanto a página está visível.
Only simulated backends were called in this period; their hypothetical cost is shown below and is in no total.|En este periodo solo se llamó a backends simulados; su coste hipotético está abajo y en ningún total.|Neste período só foram chamados backends simulados; seu custo hipotético está abaixo e em nenhum total.
Team {0} has sent no requests in this period.|El equipo {0} no envió peticiones en este periodo.|A equipe {0} não enviou requisições neste período.
A key begins with tg- and contains no spaces or special characters.|Una clave empieza por tg- y no contiene espacios ni caracteres especiales.|Uma chave começa com tg- e não contém espaços nem caracteres especiais.
Spend per hour|Gasto por hora
Spend per day|Gasto por día|Gasto por dia
Hour|Hora
Day|Día|Dia
This sends a real request of team {0}, which is charged and counted in the figures.|Esto envía una petición real del equipo {0}, que se cobra y cuenta en las cifras.|Isto envia uma requisição real da equipe {0}, que é cobrada e conta nos valores.
This key can read figures but not send requests. To make a key for both: {0}|Esta clave puede leer cifras, pero no enviar peticiones. Para crear una clave para ambas cosas: {0}|Esta chave pode ler valores, mas não enviar requisições. Para criar uma chave para ambos: {0}
Sending…|Enviando…
Answer of {0}|Respuesta de {0}|Resposta de {0}
Compare with (cache off)|Comparar con (sin caché)|Comparar com (sem cache)
Cancel|Cancelar
Cancelled. What was answered so far is charged.|Cancelado. Lo respondido hasta ahora se cobra.|Cancelado. O que já foi respondido é cobrado.
Decision|Decisión|Decisão
The flight record of {0} is not available yet.|El registro de {0} todavía no está disponible.|O registro de {0} ainda não está disponível.
Served by|Servida por
the cache|la caché|o cache
{0} in, {1} out|{0} de entrada, {1} de salida|{0} de entrada, {1} de saída
Request|Petición|Requisição
Flight record|Registro
Time line|Línea de tiempo|Linha do tempo
In words|En palabras|Em palavras
Why this backend|Por qué este backend|Por que este backend
Calls and prices|Llamadas y precios|Chamadas e preços
Notes of the gateway|Notas de la pasarela|Notas do gateway
Trimmed|Recortado|Cortado
Streamed|En streaming|Em streaming
Agent|Agente
Tags|Etiquetas
starts at {0}, first byte {1}, end {2}|empieza a {0}, primer byte {1}, fin {2}|começa em {0}, primeiro byte {1}, fim {2}
Outcome|Resultado
Price from|Precio de|Preço de
yes|sí|sim
Its times are not known.|Sus tiempos no se conocen.|Seus tempos não são conhecidos.
It was answered from the cache; no backend was called.|La respondió la caché; no se llamó a ningún backend.|Foi respondida pelo cache; nenhum backend foi chamado.
exact hit: the same request was answered before|acierto exacto: la misma petición ya se respondió|acerto exato: a mesma requisição já foi respondida
semantic hit: a question with the same meaning, verified|acierto semántico: una pregunta con el mismo significado, verificada|acerto semântico: uma pergunta com o mesmo significado, verificada
joined: shared with an identical request in progress|compartida con una petición idéntica en curso|compartilhada com uma requisição idêntica em andamento
miss: not in the cache|fallo: no estaba en la caché|falta: não estava no cache
bypassed, as requested|omitida, como se pidió|ignorado, como pedido
off|desactivada|desligado
{0} of which for idle machines|{0} de ello por máquinas inactivas|{0} disso por máquinas ociosas
every call has a price|cada llamada tiene precio|cada chamada tem preço
and {0} calls without a price|y {0} llamadas sin precio|e {0} chamadas sem preço
by the cache|por la caché|pelo cache
compared with {0} for everything|comparado con {0} para todo|comparado com {0} para tudo
{0} answers|{0} respuestas|{0} respostas
Tokens bought|Tokens comprados
{0} interrupted, of {1} calls|{0} interrumpidas, de {1} llamadas|{0} interrompidas, de {1} chamadas
{0} of {1}|{0} de {1}
{0} spent|{0} gastado|{0} gasto
{0} of the time has passed|ha pasado el {0} del tiempo|passou {0} do tempo
Used|Usado
Forecast: too early to tell.|Previsión: demasiado pronto.|Previsão: cedo demais.
Forecast: {0} at the end of the period (80% interval: {1} to {2}).|Previsión: {0} al final del periodo (intervalo del 80 %: {1} a {2}).|Previsão: {0} no fim do período (intervalo de 80%: {1} a {2}).
after the end of the period|después del final del periodo|depois do fim do período
Forecast: it will not be used up within half a year.|Previsión: no se agotará en medio año.|Previsão: não se esgotará em meio ano.
Warns at {0}.|Avisa al {0}.|Avisa em {0}.
All time.|Desde el principio.|Desde o início.
How this is calculated|Cómo se calcula|Como é calculado
All {0} answers from {1}|Las {0} respuestas de {1}|As {0} respostas de {1}
Actual spend|Gasto real
of which|de ello|disso
Idle time of own machines|Tiempo inactivo de máquinas propias|Tempo ocioso de máquinas próprias
Savings statement|Cuenta del ahorro|Demonstrativo da economia
Calls without a price, which are not included: {0}.|Llamadas sin precio, que no se incluyen: {0}.|Chamadas sem preço, que não estão incluídas: {0}.
There were no cache hits in this period.|No hubo aciertos de caché en este periodo.|Não houve acertos de cache neste período.
Cache answers by kind|Respuestas de la caché por tipo|Respostas do cache por tipo
Kind|Tipo
Answers whose original cost is unknown, not counted as saved: {0}.|Respuestas de coste original desconocido, que no cuentan como ahorro: {0}.|Respostas de custo original desconhecido, que não contam como economia: {0}.
Reported as wrong by clients: {0}.|Señaladas como erróneas por clientes: {0}.|Apontadas como erradas por clientes: {0}.
Wrong hits measured: {0} of semantic look-ups (95%: {1} to {2}; the policy allows {3}), {4} of {5} checked hits in {6} look-ups.|Aciertos erróneos medidos: {0} de las búsquedas semánticas (95 %: {1} a {2}; la política permite {3}), {4} de {5} aciertos comprobados en {6} búsquedas.|Acertos errados medidos: {0} das buscas semânticas (95%: {1} a {2}; a política permite {3}), {4} de {5} acertos verificados em {6} buscas.
No feedback yet. Applications send it to /v1/requests/ID/feedback.|Todavía no hay opiniones. Las aplicaciones las envían a /v1/requests/ID/feedback.|Ainda não há opiniões. As aplicações as enviam a /v1/requests/ID/feedback.
Feedback by backend|Opiniones por backend|Opiniões por backend
Mean score|Nota media|Nota média
Ratings|Valoraciones|Avaliações
Why|Por qué|Por quê
{0} tokens in, {1} out|{0} tokens de entrada, {1} de salida|{0} tokens de entrada, {1} de saída
There are no alerts.|No hay alertas.|Não há alertas.
Acknowledge|Confirmar
open|abierta|aberto
acknowledged by {0} at {1}|confirmada por {0} el {1}|confirmado por {0} em {1}
sent to {0}|enviada a {0}|enviado a {0}
Spend is incomplete.|El gasto está incompleto.|O gasto está incompleto.
Calls that used tokens without a known price: {0}, of {1}. Their cost is unknown, not zero, and is in none of these figures. Set the backend's price in gateway.yaml.|Llamadas que usaron tokens sin precio conocido: {0}, de {1}. Su coste es desconocido, no cero, y no está en ninguna cifra. Indique el precio del backend en gateway.yaml.|Chamadas que usaram tokens sem preço conhecido: {0}, de {1}. Seu custo é desconhecido, não zero, e não está em nenhum valor. Informe o preço do backend em gateway.yaml.
{0} of the spend is for background checks: {1} calls whose answers were only compared with others.|{0} del gasto es por comprobaciones: {1} llamadas cuyas respuestas solo se compararon con otras.|{0} do gasto é por verificações: {1} chamadas cujas respostas só foram comparadas com outras.
Calls whose tokens the gateway counted, because the backend did not: {0}.|Llamadas cuyos tokens contó la pasarela, porque el backend no los indicó: {0}.|Chamadas cujos tokens o gateway contou, porque o backend não os informou: {0}.
This team's policy is in mode observe: routing decisions are recorded but not applied.|La política de este equipo está en modo observe: las decisiones se registran, pero no se aplican.|A política desta equipe está no modo observe: as decisões são registradas, mas não aplicadas.
The limit is not enforced: the budget only warns.|El límite no se impone: el presupuesto solo avisa.|O limite não é imposto: o orçamento só avisa.
Lost|Perdido
{0} given up after {1} tries|{0}: abandonado tras {1} intentos|{0}: abandonado após {1} tentativas
{0} not reached after {1} tries|{0}: sin respuesta tras {1} intentos|{0}: sem resposta após {1} tentativas
Hourly budget|Presupuesto por hora|Orçamento por hora
Daily budget|Presupuesto diario|Orçamento diário
Weekly budget|Presupuesto semanal|Orçamento semanal
Monthly budget|Presupuesto mensual|Orçamento mensal
Total budget|Presupuesto total|Orçamento total
per key|por clave|por chave
per end user|por usuario final|por usuário final
per session|por sesión|por sessão
used up|agotado|esgotado
will not last|no alcanzará|não será suficiente
nearly used up|casi agotado|quase esgotado
within budget|dentro del presupuesto|dentro do orçamento
Small|Pequeño|Pequeno
Large|Grande
Hosted|Alojado|Hospedado
Idle machines|Máquinas inactivas|Máquinas ociosas
Requests are refused.|Las peticiones se rechazan.|As requisições são recusadas.
Only answers that cost nothing are served.|Solo se sirven respuestas sin coste.|Só são servidas respostas sem custo.
Answers in progress are finished, then only those that cost nothing are served.|Se terminan las respuestas en curso; después solo se sirven las que no cuestan nada.|As respostas em andamento terminam; depois só são servidas as que não custam nada.
Answers in progress are cut off, then only those that cost nothing are served.|Se cortan las respuestas en curso; después solo se sirven las que no cuestan nada.|As respostas em andamento são cortadas; depois só são servidas as que não custam nada.
failed attempts|intentos fallidos|tentativas falhas
weak answers replaced|respuestas débiles sustituidas|respostas fracas substituídas
second attempts of slow requests|segundos intentos de peticiones lentas|segundas tentativas de requisições lentas
prompts kept in caches|prompts guardados en cachés|prompts guardados em caches
background comparisons|comparaciones de fondo|comparações de fundo
Skip to the figures|Ir a las cifras|Ir para os valores
You are here|Está aquí|Você está aqui
Organisation (all teams)|Organización (todos los equipos)|Organização (todas as equipes)
Teams|Equipos|Equipes
Overview|Resumen|Resumo
Budget & savings|Presupuesto y ahorro|Orçamento e economia
Models & backends|Modelos y backends|Modelos e backends
Language|Idioma
Period|Periodo|Período
this month|este mes|este mês
last month|el mes pasado|o mês passado
from … to …|del … al …|de … a …
From|Desde|De
To|Hasta|Até
Show|Mostrar
Try a prompt|Probar un prompt|Testar um prompt
Sign out|Salir|Sair
What did our requests cost?|¿Cuánto costaron nuestras peticiones?|Quanto custaram nossas requisições?
You need a Thriftgate key. With the scope inference it shows its own requests; with usage or admin also the figures:|Necesita una clave de Thriftgate. Con el ámbito inference muestra sus propias peticiones; con usage o admin, también las cifras:|Você precisa de uma chave do Thriftgate. Com o escopo inference ela mostra suas próprias requisições; com usage ou admin, também os valores:
The key is stored only in this tab, until you close it.|La clave se guarda solo en esta pestaña, hasta que la cierre.|A chave fica apenas nesta aba, até você fechá-la.
No requests yet|Todavía no hay peticiones|Ainda não há requisições
Point any OpenAI client to this address and give it a key with the scope inference:|Apunte cualquier cliente de OpenAI a esta dirección, con una clave de ámbito inference:|Aponte qualquer cliente OpenAI para este endereço, com uma chave de escopo inference:
At a glance|De un vistazo|Em resumo
Latest alerts|Últimas alertas|Últimos alertas
Simulated traffic: hypothetical|Tráfico simulado: hipotético|Tráfego simulado: hipotético
No real model was called and nothing was spent. No figure above includes these requests. The cost is that of as many tokens at a real model.|No se llamó a ningún modelo real ni se gastó nada. Ninguna cifra anterior incluye estas peticiones. El coste es el de los mismos tokens en un modelo real.|Nenhum modelo real foi chamado e nada foi gasto. Nenhum valor acima inclui estas requisições. O custo é o dos mesmos tokens em um modelo real.
What was saved, and how|Qué se ahorró y cómo|O que foi economizado e como
Answers from the cache|Respuestas de la caché|Respostas do cache
Feedback|Opiniones|Opiniões
all|todas
ok|correcta|correta
failed|fallida|falhou
interrupted|interrumpida|interrompida
escalated|escalada
exact|exacta|exata
semantic|semántica|semântica
joined|compartida|compartilhada
miss|fallo|falta
bypass|omitida|ignorada
A call cost at least (USD)|Una llamada costó al menos (USD)|Uma chamada custou ao menos (USD)
Order|Orden|Ordem
newest first|las más recientes primero|as mais recentes primeiro
most expensive first|las más caras primero|as mais caras primeiro
Filter|Filtrar
Clear|Borrar|Limpar
Live|En vivo|Ao vivo
Export as CSV|Exportar como CSV
Spend by model|Gasto por modelo
Group by|Agrupar por
Time to the complete answer|Tiempo hasta la respuesta completa|Tempo até a resposta completa
Difficulty of requests|Dificultad de las peticiones|Dificuldade das requisições
Spend per day by team|Gasto por día y equipo|Gasto por dia e equipe
Close|Cerrar|Fechar
Most tokens|Máximo de tokens
Bypass cache|Omitir la caché|Ignorar o cache
Ask|Preguntar|Perguntar
Views|Vistas|Visões
Earlier months|Meses anteriores
Totals|Totales|Totais
Filters|Filtros
info|información|informação
warning|aviso
critical|crítica|crítico
forecast|previsión|previsão
no|no|não
Choose a bar to see its figures.|Elija una barra para ver sus cifras.|Escolha uma barra para ver seus valores.
Will be used up by {0} (80% interval: {1} to {2}).|Se agotará el {0} (intervalo del 80 %: {1} a {2}).|Deve se esgotar em {0} (intervalo de 80%: {1} a {2}).
Limit {0}: {1}|Límite {0}: {1}|Limite {0}: {1}
waiting for the first byte|espera del primer byte|esperando o primeiro byte
answering|respuesta|resposta
after the call before|después de la llamada anterior|depois da chamada anterior
{0} by answers from the cache; the rest by cheaper backends, prompt caches and trimmed context together.|{0} por respuestas de la caché; el resto por backends más baratos, cachés de prompts y contexto recortado, en conjunto.|{0} por respostas do cache; o resto por backends mais baratos, caches de prompts e contexto cortado, em conjunto.
too early to tell|demasiado pronto|cedo demais
Too early to tell|Demasiado pronto para saberlo|Cedo demais para saber
{0} more alerts|{0} alertas más|mais {0} alertas
answered {0}|respondió {0}|respondeu {0}
A check counts for the hits that it represents; the share is of all look-ups, with and without a hit.|Una comprobación cuenta por los aciertos que representa; la parte es de todas las búsquedas, con o sin acierto.|Uma verificação conta pelos acertos que representa; a parte é de todas as buscas, com ou sem acerto.
no figures yet|todavía sin cifras|ainda sem valores
This team, {0}.|Este equipo, {0}.|Esta equipe, {0}.
Show the list|Mostrar la lista|Mostrar a lista
Called in this period, but not configured for this key now: {0}.|Llamados en este periodo, pero ahora no configurados para esta clave: {0}.|Chamados neste período, mas agora não configurados para esta chave: {0}.
{0}, at most {1}|{0}, como mucho {1}|{0}, no máximo {1}
Cache answers by kind of question|Respuestas de la caché por tipo de pregunta|Respostas do cache por tipo de pergunta
Kind of question|Tipo de pregunta|Tipo de pergunta
Wrong hits|Aciertos erróneos|Acertos errados
Wrong hits: share of semantic look-ups, and its upper bound (95%), since the cache was started.|Aciertos erróneos: parte de las búsquedas semánticas y su límite superior (95 %), desde que se inició la caché.|Acertos errados: parte das buscas semânticas e seu limite superior (95%), desde o início do cache.
The policy of this team sets no objective for quality (slo).|La política de este equipo no fija ningún objetivo de calidad (slo).|A política desta equipe não define objetivo de qualidade (slo).
Quality objectives|Objetivos de calidad|Objetivos de qualidade
Quality|Calidad|Qualidade
Error budget left|Margen de error restante|Margem de erro restante
Burn rate|Ritmo de gasto
Judged answers|Respuestas juzgadas|Respostas julgadas
Objective: {0} of judged answers as good as the reference's, over {1} days. At burn rate 1 the error budget lasts that long.|Objetivo: {0} de las respuestas juzgadas tan buenas como las de referencia, en {1} días. Con ritmo 1 el margen de error dura ese tiempo.|Objetivo: {0} das respostas julgadas tão boas quanto as de referência, em {1} dias. Com ritmo 1 a margem de erro dura esse tempo.
met|cumplido
burning|en peligro|em perigo
missed|incumplido|não cumprido
`;

export const texts = Object.fromEntries(lines.trim().split("\n").map((line) => line.split("|")).map(([text, ...others]) => [text, others]));
